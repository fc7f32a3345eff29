/* text.h - text of strangers: counted in characters, and made harmless where it is shown. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Characters (code points) of UTF-8; a byte that is none counts as one. */
size_t text_len(const char *text, size_t size);

/* Where (byte offset) the first byte stands that is not UTF-8, or is NUL; size: nowhere. */
size_t text_bad_byte(const char *text, size_t size);

/* Not seen, or changing how its neighbours are seen: controls, zero-width, direction marks,
 * tags, fillers. Newlines, tabs and the two emoji selectors are not. */
bool text_is_hidden(uint32_t point);

bool text_has_hidden(const char *text, size_t size); /* or bytes that are not UTF-8 */

/* Hidden characters, or something of the form of a tag ("</skills>", "<!--"). */
bool text_is_suspicious(const char *text, size_t size);

/**
 * text_show() - text in a form that can stand in a page, a terminal and a prompt
 * @max_len:   characters of text that are shown; a longer one ends in "..."
 * @many_lines: newlines and tabs stay as they are; else they are escaped, too
 *
 * '<', '>' and '&' become entities; hidden characters and bytes that are not UTF-8 become
 * \u{202e} and \x{ff}. Valid UTF-8 without hidden characters and without tags, always.
 *
 * Returns an owned string; NULL: no memory.
 */
char *text_show(const char *text, size_t size, size_t max_len, bool many_lines);
