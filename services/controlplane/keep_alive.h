/* keep_alive.h - turns and streams reach the timers of backends that have some: their end is
 * pushed in the background, whenever less than half of it is left, and only ever later. */
#pragma once

#include "services/controlplane/controlplane.h"

/* The session is used until wall_ms (a turn's or a stream's end). Never waits; looks at a
 * session no more often than every half minute. */
void cp_keep_alive(struct cp *cp, const Berth__Common__V1__SessionRef *ref, int64_t until_ms);
