/* chain_fault.h - where tests may end the process in the middle of an operation: behind each
 * step (its number), and at the places below. Nothing but NULL elsewhere. */
#pragma once

enum {
    FAULT_ROW_WRITTEN = 100, /* the row is there, the backend was not asked yet */
    FAULT_ACTIVE,            /* the row is active, nothing is flipped */
    FAULT_FLIP_WRITTEN,      /* flipped, and nobody has been told */
    FAULT_END,               /* all is done but the operation's end */
};

typedef void (*skills_fault_fn)(int place);
extern skills_fault_fn skills_fault;

static inline void chain_fault(int place)
{
    if (skills_fault)
        skills_fault(place);
}
