/* tar.h - a bundle as it is sent into a sandbox. */
#pragma once

#include "services/skills/bundle/bundle.h"

/* One piece of the tar, in order; borrowed. Anything but BERTH_OK ends the writing. */
typedef enum berth_code (*bundle_sink_fn)(void *arg, const void *data, size_t size,
                                          struct berth_error *err);

/**
 * bundle_write_tar() - the normalised tar of a bundle
 * @prefix: folder that everything is put under ("pdf-tools"), or ""
 *
 * The same bundle gives the same bytes. Folders (the prefix and those that were only implied,
 * too) stand before what is in them, mode 0755; files have 0755 with a run bit, else 0644. All
 * belong to root (0:0) and were changed at the start of 2000 (UTC). pax, so that long names and
 * names outside of ASCII go along.
 *
 * Errors: the sink's; OUT_OF_MEMORY; INTERNAL_BUG.
 */
BERTH_MUST_CHECK enum berth_code bundle_write_tar(const struct bundle *bundle,
                                                  const char *prefix, bundle_sink_fn sink,
                                                  void *arg, struct berth_error *err);
