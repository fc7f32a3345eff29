/* ids.h - random identifiers from getrandom(2). */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Fill buf with size random bytes. Cannot fail: aborts where the kernel has no entropy call. */
void berth_random(void *buf, size_t size);

/* n_chars of [a-z0-9] (5.17 bits each), NUL-terminated: buf holds n_chars + 1. Returns buf. */
char *berth_id_base36(char *buf, size_t n_chars);

/* 2 * n_bytes lower-case hex digits of n_bytes random bytes; buf holds 2 * n_bytes + 1. */
char *berth_id_hex(char *buf, size_t n_bytes);

/* Lower-case hex of size given bytes; buf holds 2 * size + 1. Returns buf. */
char *berth_hex(char *buf, const void *data, size_t size);
