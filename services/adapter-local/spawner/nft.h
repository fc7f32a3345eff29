/* nft.h - the store's table of packet rules: what sandboxes may reach and who may reach them.
 * One static table per store; sandboxes are told apart by the interface their packets come
 * from. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "common/errors/errors.h"

/* The rules as text for nft; owned. For tests, and for nft_install().
 *   table:  name, "berth_<tag>"
 *   prefix: of the store's interfaces
 *   cidr:   of the store's sandboxes
 *   open:   interfaces whose inbound switch is open */
char *nft_rules(const char *table, const char *prefix, const char *cidr,
                const char *const *open, size_t n_open);

/* Replace the table in one transaction: running sandboxes are never without rules. */
BERTH_MUST_CHECK enum berth_code nft_install(const char *rules, struct berth_error *err);
/* May the host open connections to this interface's sandbox? */
BERTH_MUST_CHECK enum berth_code nft_set_inbound(const char *table, const char *link, bool open,
                                                 struct berth_error *err);
/* A descriptor that is readable when packet rules of this network namespace change; -1 with
 * errno. Other programs flush all rules now and then, ours among them. */
int nft_watch(void);
/* Read what there is: was the table removed and not made again? */
bool nft_watch_lost(int fd, const char *table);
BERTH_MUST_CHECK enum berth_code nft_remove(const char *table, struct berth_error *err);
