/* links.h - where a symbolic link in the skills' tree may lead. Pure. */
#pragma once

#include <stdbool.h>

enum link_verdict {
    LINK_INSIDE, /* of its own skill */
    LINK_SYSTEM, /* to what the image brings, which only root can write */
    LINK_OUTSIDE,
    LINK_WINDING, /* ".." behind a name: where it leads depends on other links */
};

/**
 * link_judge() - one link, by its text alone
 * @path:   of the link, below the skills' folder: "pdf/.venv/bin/python3". Its folders are real
 *          ones
 * @target: as it stands in the link
 *
 * A relative target is one from the link's folder; leading ".." are taken off that, and since
 * no other ".." is let through, the parts behind them only ever lead down: into the skill, or
 * through another link of it, which is judged for itself.
 */
enum link_verdict link_judge(const char *path, const char *target);
