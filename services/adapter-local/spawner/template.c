/* template.c - the built-in template `base`: a Debian of the host's own release with what
 * agents commonly need, built by mmdebstrap. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/json/json.h"
#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/sources.h"
#include "services/adapter-local/spawner/spawner.h"

enum { SOURCES_FILE_MAX = 65536 };

static const char packages[] =
    "bash,ca-certificates,coreutils,git,jq,nodejs,npm,procps,python3,python3-pip,python3-venv";

/* Run by mmdebstrap when everything is installed; $1 is the tree. Certificates: what the host
 * trusts, as files of their own, and its local ones where update-ca-certificates finds them. */
static const char finish[] =
    "set -e\n"
    "chroot \"$1\" groupadd --gid 1000 user\n"
    "chroot \"$1\" useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash user\n"
    "mkdir -p \"$1/workspace/input\" \"$1/workspace/output\" \"$1/opt/berth/skills\"\n"
    "chown -R 1000:1000 \"$1/workspace\"\n"
    "if [ -d /etc/ssl/certs ]; then\n"
    "  rm -rf \"$1/etc/ssl/certs\"\n"
    "  mkdir -p \"$1/etc/ssl\" \"$1/usr/local/share/ca-certificates\"\n"
    "  cp -rL /etc/ssl/certs \"$1/etc/ssl/certs\"\n"
    "  cp -rL /usr/local/share/ca-certificates/. \"$1/usr/local/share/ca-certificates/\" || "
    "true\n"
    "fi\n"
    "rm -f \"$1/etc/resolv.conf\"\n"
    ": > \"$1/etc/resolv.conf\"\n"
    "echo berth > \"$1/etc/hostname\"\n"
    "printf '127.0.0.1 localhost berth\\n' > \"$1/etc/hosts\"\n"
    "rm -rf \"$1\"/var/lib/apt/lists/* \"$1\"/var/cache/apt/* \"$1\"/tmp/* \"$1\"/run/*\n"
    "rm -rf \"$1\"/var/log/apt \"$1\"/var/log/dpkg.log \"$1\"/var/cache/debconf/*-old\n";

/* ------------------------------------------------------------------ sources */

static enum berth_code read_codename(char *codename, size_t size, struct berth_error *err)
{
    static const char key[] = "\nVERSION_CODENAME=";
    char text[4096] = "\n";
    const char *at;

    if (io_read(AT_FDCWD, "/usr/lib/os-release", text + 1, sizeof text - 1) < 0)
        return io_fail(err, "read /usr/lib/os-release");
    at = strstr(text, key);
    if (!at)
        return berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                          "templates are built on Debian and Ubuntu only");
    at += strlen(key);
    snprintf(codename, size, "%.*s", (int)strcspn(at, "\n"), at);
    return BERTH_OK;
}

static unsigned select_file(const char *path, const char *codename, FILE *out)
{
    BERTH_AUTO(free) char *text = malloc(SOURCES_FILE_MAX);
    size_t len = strlen(path);
    bool deb822 = len > 8 && strcmp(path + len - 8, ".sources") == 0;
    bool list = len > 5 && strcmp(path + len - 5, ".list") == 0;

    if (!text || (!deb822 && !list) || io_read(AT_FDCWD, path, text, SOURCES_FILE_MAX) < 0)
        return 0;
    return sources_select(text, deb822, codename, out);
}

/* Write the host's entries to <dir>/sources.list. */
static enum berth_code write_sources(int dir_fd, const char *codename, struct berth_error *err)
{
    BERTH_AUTO(free) char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    unsigned n;
    DIR *dir;

    if (!out)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    n = select_file("/etc/apt/sources.list", codename, out);
    dir = opendir("/etc/apt/sources.list.d");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[512];

        snprintf(path, sizeof path, "/etc/apt/sources.list.d/%s", entry->d_name);
        n += select_file(path, codename, out);
    }
    if (dir)
        closedir(dir);
    if (fclose(out) != 0)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (n == 0)
        return berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                          "no apt source of this host offers the release '%s'", codename);
    return io_replace(dir_fd, "sources.list", text, size, false, err);
}

/* ----------------------------------------------------------------- progress */

/* Where in the work a line of mmdebstrap's output puts us. */
static const struct {
    const char *starts, *step;
    unsigned percent;
} stages[] = {
    {"I: running apt-get update", "package lists", 2},
    {"I: downloading packages with apt", "download", 6},
    {"I: extracting archives", "essential packages", 12},
    {"I: installing essential packages", "essential packages", 18},
    {"I: downloading apt", "download", 22},
    {"I: installing remaining packages", "packages", 25},
    {"Unpacking ", "packages", 0},
    {"Setting up ", "packages", 0},
    {"I: running --customize-hook", "files", 92},
    {"I: cleaning package lists", "clean", 95},
};

enum { UNPACK_FROM = 25, SET_UP_FROM = 60, HALF_PACKAGES = 33, ABOUT_PACKAGES = 450 };

struct progress {
    const struct spawner *spawner;
    const struct operation *op;
    const char *step;
    unsigned percent, unpacked, set_up;
};

static bool on_line(void *arg, const char *line)
{
    struct progress *p = arg;
    unsigned percent = 0;

    for (size_t i = 0; i < BERTH_COUNT(stages); i++)
        if (strncmp(line, stages[i].starts, strlen(stages[i].starts)) == 0) {
            p->step = stages[i].step;
            percent = stages[i].percent;
            if (line[0] == 'U')
                percent = UNPACK_FROM + ++p->unpacked * HALF_PACKAGES / ABOUT_PACKAGES;
            if (line[0] == 'S')
                percent = SET_UP_FROM + ++p->set_up * HALF_PACKAGES / ABOUT_PACKAGES;
        }
    if (percent > 99)
        percent = 99;
    /* Essential packages are set up before the rest is unpacked: never show less than before.
     */
    if (percent > p->percent)
        p->percent = percent;
    return spawner_progress(p->spawner, p->op, p->step, p->percent, line);
}

/* -------------------------------------------------------------------- build */

static enum berth_code bootstrap(const struct spawner *spawner, const struct operation *op,
                                 const char *dir, const char *codename, struct berth_error *err)
{
    struct progress progress = {.spawner = spawner, .op = op, .step = "start"};
    char include[sizeof packages + 16], hook[sizeof finish + 32];
    char target[STORE_PATH_MAX + 160], sources[STORE_PATH_MAX + 160];
    const char *const argv[] = {"mmdebstrap",
                                "--verbose",
                                "--mode=root",
                                "--format=directory",
                                "--variant=minbase",
                                include,
                                hook,
                                "--aptopt=Apt::Install-Recommends \"false\"",
                                "--aptopt=Acquire::Retries \"3\"",
                                codename,
                                target,
                                sources,
                                NULL};

    snprintf(include, sizeof include, "--include=%s", packages);
    snprintf(hook, sizeof hook, "--customize-hook=%s", finish);
    snprintf(target, sizeof target, "%s/rootfs", dir);
    snprintf(sources, sizeof sources, "%s/sources.list", dir);
    return io_run(argv, NULL, op->deadline_ms, on_line, &progress, err);
}

static enum berth_code publish(const struct spawner *spawner, const char *hidden,
                               const char *name, int dir_fd, const char *codename,
                               struct berth_error *err)
{
    struct adapter_template info = {.create_ms = berth_now_ms()};
    int64_t bytes = io_tree_bytes(dir_fd, "rootfs");
    enum berth_code code;

    info.size_bytes = bytes < 0 ? 0 : (uint64_t)bytes;
    snprintf(info.message, sizeof info.message, "built from %s", codename);
    if (syncfs(dir_fd) < 0)
        return io_fail(err, "sync the template");
    code = template_save(dir_fd, &info, err);
    if (code)
        return code;
    (void)unlinkat(dir_fd, "lock", 0);
    if (renameat(spawner->store.templates_fd, hidden, spawner->store.templates_fd, name) < 0 ||
        fsync(spawner->store.templates_fd) < 0)
        return io_fail(err, "publish the template");
    return BERTH_OK;
}

/* The hidden directory a template is built in, its lock held; waits for another build's end. */
struct workshop {
    char hidden[ADAPTER_ID_SIZE + 16];
    int dir_fd, lock_fd;
};

static void leave_workshop(struct workshop *shop)
{
    if (shop->dir_fd >= 0)
        close(shop->dir_fd);
    if (shop->lock_fd >= 0)
        close(shop->lock_fd);
    shop->dir_fd = shop->lock_fd = -1;
}

static bool still_there(const struct spawner *spawner, const struct workshop *shop)
{
    struct stat held, now;

    return fstat(shop->dir_fd, &held) == 0 &&
           fstatat(spawner->store.templates_fd, shop->hidden, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
           held.st_ino == now.st_ino;
}

static enum berth_code enter_workshop(const struct spawner *spawner, const char *name,
                                      int64_t deadline_ms, struct workshop *shop,
                                      struct berth_error *err)
{
    struct adapter_template built;
    char layer[STORE_PATH_MAX];
    enum berth_code code = BERTH_OK;

    *shop = (struct workshop){.dir_fd = -1, .lock_fd = -1};
    snprintf(shop->hidden, sizeof shop->hidden, ".build-%s", name);
    for (;;) {
        shop->dir_fd = io_make_dir(spawner->store.templates_fd, shop->hidden, 0700);
        if (shop->dir_fd < 0)
            return io_fail(err, "make a template");
        shop->lock_fd = io_make_lock(shop->dir_fd);
        if (shop->lock_fd < 0) {
            shop->lock_fd = openat(shop->dir_fd, "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
            code = shop->lock_fd < 0 ? io_fail(err, "lock a template")
                                     : io_lock(shop->lock_fd, deadline_ms, "the template", err);
        }
        /* The build before ours has taken the directory with it, one way or the other. */
        if (code || still_there(spawner, shop))
            break;
        leave_workshop(shop);
        if (template_load(&spawner->store, name, &built, layer, NULL) == BERTH_OK)
            break;
    }
    if (code)
        leave_workshop(shop);
    return code;
}

static enum berth_code build(const struct spawner *spawner, const struct operation *op,
                             const char *name, struct berth_error *err)
{
    char dir[STORE_PATH_MAX + 128], codename[64];
    struct workshop shop = {.dir_fd = -1, .lock_fd = -1};
    enum berth_code code = read_codename(codename, sizeof codename, err);

    if (!code)
        code = enter_workshop(spawner, name, op->deadline_ms, &shop, err);
    if (code || shop.dir_fd < 0)
        return code;
    snprintf(dir, sizeof dir, "%s/templates/%s", spawner->store.path, shop.hidden);
    if (io_remove_tree(shop.dir_fd, "rootfs") < 0)
        code = io_fail(err, "clear an earlier try");
    if (!code)
        code = write_sources(shop.dir_fd, codename, err);
    if (!code)
        code = bootstrap(spawner, op, dir, codename, err);
    if (!code)
        code = publish(spawner, shop.hidden, name, shop.dir_fd, codename, err);
    if (code)
        (void)!store_trash(&spawner->store, spawner->store.templates_fd, shop.hidden, NULL);
    leave_workshop(&shop);
    return code;
}

enum berth_code spawner_build_template(const struct spawner *spawner, struct operation *op,
                                       struct berth_error *err)
{
    char name[ADAPTER_ID_SIZE] = "", layer[STORE_PATH_MAX];
    struct adapter_template present;
    enum berth_code code = berth_json_get_str(op->request, "name", name, sizeof name, "", err);

    if (code)
        return code;
    op->afterwards = spawner_empty_trash;
    code = template_load(&spawner->store, name, &present, layer, err);
    if (code != BERTH_NOT_FOUND)
        return code;
    if (strcmp(name, "base") != 0)
        return berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                          "the only recipe built in is 'base'");
    return build(spawner, op, name, err);
}

/* ------------------------------------------------------------------- delete */

static bool uses(char *const *layers, size_t n, const char *layer)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(layers[i], layer) == 0)
            return true;
    return false;
}

static enum berth_code check_unused(const struct spawner *spawner, const char *layer,
                                    struct berth_error *err)
{
    char **names = NULL;
    size_t n = 0;
    enum berth_code code = store_list(spawner->store.sandboxes_fd, &names, &n, err);

    for (size_t i = 0; !code && i < n; i++) {
        struct record record;

        if (record_load(&spawner->store, names[i], &record, NULL))
            continue;
        if (uses(record.layers, record.n_layers, layer))
            code =
                berth_fail(err, BERTH_REASON_CONFLICT, "sandbox %s boots from it", record.id);
        record_deinit(&record);
    }
    store_list_free(names, n);
    names = NULL;
    n = 0;
    if (!code)
        code = store_list(spawner->store.snapshots_fd, &names, &n, err);
    for (size_t i = 0; !code && i < n; i++) {
        struct snapshot_record record;

        if (snapshot_load(&spawner->store, names[i], &record, NULL))
            continue;
        if (uses(record.layers, record.n_layers, layer))
            code = berth_fail(err, BERTH_REASON_CONFLICT, "snapshot %s stands on it",
                              record.info.id);
        snapshot_record_deinit(&record);
    }
    store_list_free(names, n);
    return code;
}

enum berth_code spawner_delete_template(const struct spawner *spawner, struct operation *op,
                                        struct berth_error *err)
{
    char name[ADAPTER_ID_SIZE] = "", layer[STORE_PATH_MAX];
    struct adapter_template info;
    bool existed = true;
    enum berth_code code =
        berth_json_get_str(op->request, "template_id", name, sizeof name, "", err);

    if (!code)
        code = template_load(&spawner->store, name, &info, layer, err);
    if (code == BERTH_NOT_FOUND) {
        existed = false;
        code = BERTH_OK;
    } else if (!code && layer[0] == '/') {
        code = berth_fail(err, BERTH_REASON_CONFLICT,
                          "the template is in a directory that is only read");
    } else if (!code) {
        code = check_unused(spawner, layer, err);
        if (!code)
            code = store_trash(&spawner->store, spawner->store.templates_fd, name, err);
    }
    if (!code && json_object_set_new(op->answer, "existed", json_boolean(existed)) < 0)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    op->afterwards = spawner_empty_trash;
    return code;
}
