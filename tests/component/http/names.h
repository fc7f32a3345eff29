/* names.h - a resolver of our own: getaddrinfo() of the test program, for common/http and for
 * libcurl alike, so that a test sees whoever looks something up behind its back. */
#pragma once

/* What the n-th look-up of the name gets, and every later one: addresses parted by spaces; "":
 * no such name. Names that were not set do not exist. */
void names_set(const char *name, const char *const *answers, unsigned n_answers);
void names_clear(void);
/* How often the name was looked up; NULL: all names together. */
unsigned names_asked(const char *name);
/* Look-ups take as long as this. */
void names_delay(int ms);
