#include "services/skills/work/blame.h"

#include <stdint.h>
#include <string.h>

#include "common/base/base.h"

/* A piece of a line that tells a kind. What stands later in the table never outweighs what
 * stands earlier: without a network pip says "no matching distribution", too. */
static const struct {
    enum blame_kind kind;
    const char *piece;
    const char *before; /* the package's name follows on this; NULL: it is not named */
} tells[] = {
    {BLAME_DISK, "No space left on device", NULL},
    {BLAME_DISK, "ENOSPC", NULL},
    {BLAME_DISK, "Disk quota exceeded", NULL},
    {BLAME_DISK, "You don't have enough free space", NULL},
    {BLAME_MEMORY, "Cannot allocate memory", NULL},
    {BLAME_MEMORY, "JavaScript heap out of memory", NULL},
    {BLAME_CERTIFICATE, "CERTIFICATE_VERIFY_FAILED", NULL},
    {BLAME_CERTIFICATE, "invalid peer certificate", NULL},
    {BLAME_CERTIFICATE, "SELF_SIGNED_CERT_IN_CHAIN", NULL},
    {BLAME_CERTIFICATE, "UNABLE_TO_GET_ISSUER_CERT", NULL},
    {BLAME_CERTIFICATE, "UNABLE_TO_VERIFY_LEAF_SIGNATURE", NULL},
    {BLAME_CERTIFICATE, "Certificate verification failed", NULL},
    {BLAME_NO_NETWORK, "Temporary failure in name resolution", NULL},
    {BLAME_NO_NETWORK, "Name or service not known", NULL},
    {BLAME_NO_NETWORK, "Temporary failure resolving", NULL},
    {BLAME_NO_NETWORK, "Could not resolve", NULL},
    {BLAME_NO_NETWORK, "Failed to establish a new connection", NULL},
    {BLAME_NO_NETWORK, "ConnectTimeoutError", NULL},
    {BLAME_NO_NETWORK, "ProxyError", NULL},
    {BLAME_NO_NETWORK, "Network is unreachable", NULL},
    {BLAME_NO_NETWORK, "failed to lookup address information", NULL},
    {BLAME_NO_NETWORK, "client error (Connect)", NULL},
    {BLAME_NO_NETWORK, "EAI_AGAIN", NULL},
    {BLAME_NO_NETWORK, "ENOTFOUND", NULL},
    {BLAME_NO_NETWORK, "ECONNREFUSED", NULL},
    {BLAME_NO_NETWORK, "ECONNRESET", NULL},
    {BLAME_NO_NETWORK, "ETIMEDOUT", NULL},
    {BLAME_NO_NETWORK, "ENETUNREACH", NULL},
    {BLAME_NO_NETWORK, "ERR_SOCKET_TIMEOUT", NULL},
    {BLAME_NO_NETWORK, "Could not connect to", NULL},
    {BLAME_CONFLICT, "ResolutionImpossible", NULL},
    {BLAME_CONFLICT, "conflicting dependencies", "Cannot install "},
    {BLAME_CONFLICT, "ERESOLVE", NULL},
    {BLAME_CONFLICT, "you have unmet dependencies", NULL},
    {BLAME_CONFLICT, "have unmet dependencies", NULL},
    {BLAME_CONFLICT, "has requirement ", NULL},
    {BLAME_LOCK, "can only install packages when your package.json and", NULL},
    {BLAME_LOCK, "Unable to find lockfile", NULL},
    {BLAME_LOCK, "Failed to parse `uv.lock`", NULL},
    {BLAME_LOCK, "EINTEGRITY", NULL},
    {BLAME_LOCK, "Hash mismatch", NULL},
    {BLAME_LOCK, "DO NOT MATCH THE HASHES", NULL},
    {BLAME_NO_PACKAGE, "No matching distribution found for ", "found for "},
    {BLAME_NO_PACKAGE, "satisfies the requirement ", "requirement "},
    {BLAME_NO_PACKAGE, "is not in this registry", "'"},
    {BLAME_NO_PACKAGE, "No matching version found for ", "found for "},
    {BLAME_NO_PACKAGE, "no cached response is available", "request to "},
    {BLAME_NO_PACKAGE, "404 Not Found", "GET "},
    {BLAME_NO_PACKAGE, "was not found in the package registry", "Because "},
    {BLAME_NO_PACKAGE, "was not found in the provided package locations", "Because "},
    {BLAME_NO_PACKAGE, "was not found in the cache", "Because "},
    {BLAME_NO_PACKAGE, "there is no version of ", "no version of "},
    {BLAME_NO_PACKAGE, "Unable to locate package ", "package "},
    {BLAME_NO_PACKAGE, "has no installation candidate", "Package '"},
    {BLAME_NO_PACKAGE, "was not found", "' for '"},
    {BLAME_BUILD, "Failed building wheel for ", "wheel for "},
    {BLAME_BUILD, "Failed to build `", "build `"},
    {BLAME_BUILD, "Could not build wheels for ", "wheels for "},
    {BLAME_BUILD, "metadata-generation-failed", NULL},
    {BLAME_BUILD, "subprocess-exited-with-error", NULL},
    {BLAME_BUILD, "npm ERR! command failed", NULL},
    {BLAME_BUILD, "npm ERR! path ", "/node_modules/"},
    {BLAME_BUILD, "Sub-process /usr/bin/dpkg returned an error code", NULL},
    {BLAME_BUILD, "post-installation script subprocess returned", NULL},
    {BLAME_OTHER, "ERROR: ", NULL},
    {BLAME_OTHER, "error: ", NULL},
    {BLAME_OTHER, "E: ", NULL},
    {BLAME_OTHER, "npm ERR! ", NULL},
};

const char *blame_text(enum blame_kind kind)
{
    switch (kind) {
    case BLAME_NO_NETWORK:
        return "no package index could be reached: does the config's network let it, or does "
               "it name an offline cache?";
    case BLAME_CERTIFICATE:
        return "the package index shows a certificate that is not trusted in the sandbox";
    case BLAME_NO_PACKAGE:
        return "there is no such package, or not in that version, where it was looked for";
    case BLAME_CONFLICT:
        return "the versions that are asked for exclude each other";
    case BLAME_LOCK:
        return "the lock file does not fit its manifest, or what is served under it";
    case BLAME_BUILD:
        return "the package's own build or install script failed";
    case BLAME_DISK:
        return "no space is left in the maintenance sandbox";
    case BLAME_MEMORY:
        return "the maintenance sandbox ran out of memory";
    case BLAME_OTHER:
        break;
    }
    return "the installer failed";
}

/* find in [at, end), within one line. */
static const char *find(const char *at, const char *end, const char *piece)
{
    return memmem(at, (size_t)(end - at), piece, strlen(piece));
}

static void copy(char *to, size_t max, const char *from, const char *end)
{
    size_t n = (size_t)(end - from) < max ? (size_t)(end - from) : max;

    memcpy(to, from, n);
    to[n] = 0;
}

static bool ends_name(char c)
{
    return c == ' ' || c == '\'' || c == '`' || c == '"' || c == ';' || c == ',' || c == '(' ||
           (unsigned char)c < 0x20;
}

/* The name behind `before`: to a blank or quote; of a URL its last part. */
static void name_package(struct blame *ret, const char *line, const char *end,
                         const char *before)
{
    const char *at = find(line, end, before), *stop, *slash;

    if (!at)
        return;
    at += strlen(before);
    for (stop = at; stop < end && !ends_name(*stop);)
        stop++;
    if (stop > at && stop[-1] == '.') /* of the sentence */
        stop--;
    if (find(at, stop, "://")) {
        slash = memrchr(at, '/', (size_t)(stop - at));
        at = slash ? slash + 1 : at;
    } else if (before[0] == '/') { /* of a path: the first part, two where it is a scope */
        slash = memchr(at, '/', (size_t)(stop - at));
        if (slash && *at == '@')
            slash = memchr(slash + 1, '/', (size_t)(stop - slash - 1));
        stop = slash ? slash : stop;
    }
    copy(ret->package, BLAME_PACKAGE_MAX, at, stop);
}

void blame_read(const char *text, size_t size, struct blame *ret)
{
    const char *end = text + size;
    size_t best = BERTH_COUNT(tells);

    *ret = (struct blame){.kind = BLAME_OTHER};
    for (const char *line = text; line < end;) {
        const char *eol = memchr(line, '\n', (size_t)(end - line));
        const char *stop = eol ? eol : end;

        for (size_t i = 0; i < BERTH_COUNT(tells); i++) {
            bool is_better = best == BERTH_COUNT(tells) || tells[i].kind != tells[best].kind
                                 ? i < best
                                 : !ret->package[0] && tells[i].before != NULL;

            if (!is_better || !find(line, stop, tells[i].piece))
                continue;
            if (tells[i].kind != ret->kind)
                ret->package[0] = 0;
            best = i;
            ret->kind = tells[i].kind;
            copy(ret->line, BLAME_LINE_MAX, line, stop);
            if (tells[i].before)
                name_package(ret, line, stop, tells[i].before);
            break;
        }
        line = stop + 1;
    }
}

static bool has_kind(const char *text, size_t size, enum blame_kind kind)
{
    for (size_t i = 0; i < BERTH_COUNT(tells); i++)
        if (tells[i].kind == kind && find(text, text + size, tells[i].piece))
            return true;
    return false;
}

bool blame_is_disk(const char *text)
{
    return has_kind(text, strlen(text), BLAME_DISK);
}

bool blame_is_offline(const char *text, size_t size)
{
    return has_kind(text, size, BLAME_NO_NETWORK);
}

void blame_mask(char *text, size_t size)
{
    char *end = text + size, *at = text;

    while ((at = memmem(at, (size_t)(end - at), "://", 3))) {
        char *begin = at + 3, *stop = begin, *sign = NULL;

        for (; stop < end && (unsigned char)*stop > ' ' && !strchr("/?#\"'<>`", *stop); stop++)
            if (*stop == '@')
                sign = stop;
        if (sign)
            memset(begin, '*', (size_t)(sign - begin));
        at = begin;
    }
}
