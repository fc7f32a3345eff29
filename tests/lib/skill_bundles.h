/* skill_bundles.h - skills in the shapes that the world ships them in, to be packed. */
#pragma once

#include "tests/lib/packer.h"

struct skill_bundle {
    const char *name; /* of the skill */
    const struct pack_file *files;
    size_t n_files;
};

extern const struct skill_bundle skill_bundles[];
extern const size_t n_skill_bundles;

/* By its name; there is one. */
const struct skill_bundle *skill_bundle_find(const char *name);
