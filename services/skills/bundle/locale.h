/* locale.h - UTF-8 for the calls of this thread that depend on a locale: libarchive converts
 * names by it. */
#pragma once

#include <locale.h>

struct utf8_locale {
    locale_t own, before;
};

/* False: no memory. */
static inline _Bool utf8_locale_enter(struct utf8_locale *locale)
{
    locale->own = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (!locale->own)
        return 0;
    locale->before = uselocale(locale->own);
    return 1;
}

static inline void utf8_locale_leave(struct utf8_locale *locale)
{
    uselocale(locale->before);
    freelocale(locale->own);
}
