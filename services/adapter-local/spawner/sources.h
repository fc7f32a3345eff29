/* sources.h - the Debian (or Ubuntu) part of this host's apt sources, as one-line entries. */
#pragma once

#include <stdio.h>

/* Append to out every "deb" entry of one file's text whose suite is the release itself or its
 * -updates or -security; entries of third parties have other suites. deb822: the file has
 * stanzas ("*.sources"). Returns how many were written. */
unsigned sources_select(const char *text, int deb822, const char *codename, FILE *out);
