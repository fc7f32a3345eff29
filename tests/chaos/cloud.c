#include "tests/chaos/cloud.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "common/time/time.h"

enum {
    BOXES_MAX = 200000,
    ROOM = 1024,
    KEYS = 1 << 14,
    SLOW_MAX_MS = 400,
    LAG_MAX_MS = 500, /* of a list */
    LATE_DELETE_MS = 1000,
    LIE_MS = 600000,
    ISOLATION_CONTAINER = 3,
    TIMEOUT_MODEL_NONE = 3,
    DATA_PLANE_ADAPTER = 1,
    TEMPLATE_STATE_READY = 2,
};

struct box {
    struct adapter_sandbox sandbox;
    char key[ADAPTER_KEY_SIZE];
    char attempt[ADAPTER_ATTEMPT_SIZE];
    int64_t made_ms;   /* wall clock; in the future: it has not landed yet */
    int64_t listed_ms; /* wall clock; from then on it is in lists */
    int64_t gone_ms;   /* wall clock; 0: nobody has deleted it */
    uint64_t n_deletes;
    bool told_made, told_gone;
};

struct adapter {
    struct cloud_options options;
    FILE *log;
    pthread_mutex_t mutex; /* guards all below */
    struct box *boxes;
    size_t n, room;
    size_t first; /* none before it is of interest any more */
    uint64_t n_lists;
    uint32_t n_creates[KEYS];
};

/* ------------------------------------------------------------------------ fates */

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static uint64_t mix_text(uint64_t seed, const char *text)
{
    for (; *text; text++)
        seed = mix(seed ^ (unsigned char)*text);
    return seed;
}

enum cloud_fate cloud_fate(uint64_t seed, unsigned trouble, const char *kind, const char *key,
                           uint64_t n, uint64_t *ret_dice)
{
    static const enum cloud_fate bad[] = {CLOUD_SLOW, CLOUD_LOST,     CLOUD_LATE,
                                          CLOUD_LATE, CLOUD_REPEATED, CLOUD_REFUSED};
    uint64_t dice = mix(mix_text(mix_text(mix(seed), kind), key) ^ n);

    *ret_dice = mix(dice);
    if (dice % 1000 >= trouble)
        return CLOUD_OBEY;
    return bad[dice / 1000 % BERTH_COUNT(bad)];
}

static bool is_calm(const struct adapter *cloud)
{
    return !cloud->options.trouble || access(cloud->options.calm_path, F_OK) == 0;
}

static enum cloud_fate fate(const struct adapter *cloud, const char *kind, const char *key,
                            uint64_t n, uint64_t *ret_dice)
{
    enum cloud_fate drawn =
        cloud_fate(cloud->options.seed, cloud->options.trouble, kind, key, n, ret_dice);

    return is_calm(cloud) ? CLOUD_OBEY : drawn;
}

/* -------------------------------------------------------------------------- log */

/* Called with the mutex held. when_ms: wall clock of the event, now or a while ago. */
static void say(const struct adapter *cloud, const char *what, const struct box *box,
                int64_t when_ms)
{
    const char *session = adapter_pairs_get(&box->sandbox.metadata, "berth.session");

    fprintf(cloud->log, "%" PRId64 " %s %s %s %.16s\n",
            berth_tick_ns() - (berth_now_ms() - when_ms) * 1000000, what, box->sandbox.id,
            session ? session : "-", box->attempt[0] ? box->attempt : "-");
}

/* Called with the mutex held: what has come true since is written down. */
static void catch_up(struct adapter *cloud)
{
    int64_t now_ms = berth_now_ms();
    bool settled = true;

    for (size_t i = cloud->first; i < cloud->n; i++) {
        struct box *box = &cloud->boxes[i];

        if (!box->told_made && box->made_ms <= now_ms) {
            box->told_made = true;
            say(cloud, "made", box, box->made_ms);
        }
        if (box->told_made && !box->told_gone && box->gone_ms && box->gone_ms <= now_ms) {
            box->told_gone = true;
            say(cloud, "gone", box, box->gone_ms);
        }
        if (settled && box->told_gone)
            cloud->first = i + 1;
        else
            settled = false;
    }
}

/* Called with the mutex held. */
static bool is_there(const struct box *box)
{
    int64_t now_ms = berth_now_ms();

    return box->made_ms <= now_ms && (!box->gone_ms || box->gone_ms > now_ms);
}

static struct box *find(struct adapter *cloud, const char *id)
{
    unsigned long n = 0;

    if (sscanf(id, "cloud-%lu", &n) != 1 || n >= cloud->n ||
        strcmp(cloud->boxes[n].sandbox.id, id) != 0 || !is_there(&cloud->boxes[n]))
        return NULL;
    return &cloud->boxes[n];
}

static enum berth_code enter(struct adapter *cloud, const char *id, struct box **ret,
                             struct berth_error *err)
{
    pthread_mutex_lock(&cloud->mutex);
    catch_up(cloud);
    *ret = find(cloud, id);
    if (*ret)
        return BERTH_OK;
    pthread_mutex_unlock(&cloud->mutex);
    return berth_fail(err, BERTH_REASON_SANDBOX_NOT_FOUND, NULL);
}

static void wait_ms(int64_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    while (ms > 0 && nanosleep(&left, &left) < 0 && errno == EINTR)
        continue;
}

static enum berth_code lose_answer(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN, "the answer is lost");
}

/* ----------------------------------------------------------------------- create */

static enum berth_code copy_pairs(struct adapter_pairs *to, const struct adapter_pairs *from,
                                  struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < from->n; i++)
        code = adapter_pairs_add(to, from->keys[i], from->values[i], err);
    return code;
}

static enum berth_code copy_sandbox(struct adapter_sandbox *to,
                                    const struct adapter_sandbox *from, struct berth_error *err)
{
    enum berth_code code;

    *to = *from;
    to->metadata = (struct adapter_pairs){0};
    code = copy_pairs(&to->metadata, &from->metadata, err);
    if (code)
        adapter_sandbox_deinit(to);
    return code;
}

static enum berth_code grow(struct adapter *cloud, struct berth_error *err)
{
    size_t room = cloud->room ? 2 * cloud->room : ROOM;
    struct box *boxes;

    if (cloud->n < cloud->room)
        return BERTH_OK;
    if (cloud->n >= BOXES_MAX)
        return berth_fail(err, BERTH_REASON_BACKEND_CAPACITY, NULL);
    boxes = realloc(cloud->boxes, room * sizeof *boxes);
    if (!boxes)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    cloud->boxes = boxes;
    cloud->room = room;
    return BERTH_OK;
}

/* Called with the mutex held: one that lands made_ms. *ret is good until the next one. */
static enum berth_code add(struct adapter *cloud, const struct adapter_create *want,
                           int64_t made_ms, int64_t lag_ms, struct box **ret,
                           struct berth_error *err)
{
    int64_t bound_ms = want->not_after_ms + cloud->options.horizon_ms;
    enum berth_code code = grow(cloud, err);
    struct box *box;

    if (code)
        return code;
    box = &cloud->boxes[cloud->n];
    *box = (struct box){.made_ms = made_ms, .listed_ms = made_ms + lag_ms};
    if (cloud->options.lie == CLOUD_HONEST && want->not_after_ms && box->listed_ms > bound_ms)
        box->listed_ms = bound_ms;
    snprintf(box->sandbox.id, sizeof box->sandbox.id, "cloud-%06zu", cloud->n);
    snprintf(box->sandbox.raw_state, sizeof box->sandbox.raw_state, "up");
    box->sandbox.state = ADAPTER_RUNNING;
    box->sandbox.image = want->image;
    box->sandbox.create_ms = made_ms;
    box->sandbox.timeouts = want->timeouts;
    box->sandbox.network = want->network;
    box->sandbox.fence = want->fence;
    snprintf(box->key, sizeof box->key, "%s", want->unique_key);
    snprintf(box->attempt, sizeof box->attempt, "%s", want->attempt);
    code = copy_pairs(&box->sandbox.metadata, &want->metadata, err);
    if (code) {
        adapter_sandbox_deinit(&box->sandbox);
        return code;
    }
    cloud->n++;
    *ret = box;
    return BERTH_OK;
}

/* Creates of a key before this one. Keys may share a count. */
static uint64_t count_key(struct adapter *cloud, const char *key)
{
    return cloud->n_creates[mix_text(0, key) % KEYS]++;
}

static struct box *find_key(struct adapter *cloud, const char *key)
{
    for (size_t i = cloud->first; i < cloud->n; i++)
        if (is_there(&cloud->boxes[i]) && strcmp(cloud->boxes[i].key, key) == 0)
            return &cloud->boxes[i];
    return NULL;
}

static enum berth_code create_keyed(struct adapter *cloud, const struct adapter_create *want,
                                    struct adapter_sandbox *ret, struct berth_error *err)
{
    struct box *box;
    enum berth_code code = BERTH_OK;

    wait_ms(cloud->options.create_ms);
    pthread_mutex_lock(&cloud->mutex);
    box = find_key(cloud, want->unique_key);
    if (box && strcmp(box->attempt, want->attempt) != 0) {
        code = berth_fail(err, BERTH_REASON_SANDBOX_EXISTS, NULL);
        BERTH_ERROR_SET(err, sandbox_id, box->sandbox.id);
    } else if (!box) {
        code = add(cloud, want, berth_now_ms(), 0, &box, err);
    }
    catch_up(cloud);
    if (!code)
        code = copy_sandbox(ret, &box->sandbox, err);
    pthread_mutex_unlock(&cloud->mutex);
    return code;
}

/* When a late create lands: any time until the horizon, which is counted from not_after. */
static int64_t landing_ms(const struct adapter *cloud, const struct adapter_create *want,
                          uint64_t dice)
{
    int64_t now_ms = berth_now_ms();
    int64_t until_ms = want->not_after_ms + cloud->options.horizon_ms;

    if (cloud->options.lie == CLOUD_LATER_THAN_TOLD)
        return until_ms + cloud->options.horizon_ms;
    if (!want->not_after_ms || until_ms <= now_ms)
        return now_ms;
    /* Half of them soon, when the answer is still fresh. */
    if (dice & 1)
        until_ms = now_ms + (until_ms - now_ms) / 16;
    return now_ms + (int64_t)((dice >> 1) % (uint64_t)(until_ms - now_ms + 1));
}

static enum berth_code create(struct adapter *cloud, const struct adapter_create *want,
                              int64_t deadline_ms, struct adapter_sandbox *ret,
                              struct berth_error *err)
{
    struct box *box = NULL;
    enum cloud_fate what;
    uint64_t dice;
    int64_t lag_ms;
    enum berth_code code = BERTH_OK;

    (void)deadline_ms;
    if (want->not_after_ms && berth_now_ms() > want->not_after_ms)
        return berth_fail(err, BERTH_REASON_DEADLINE, "not_after_time has passed");
    if (cloud->options.keyed)
        return create_keyed(cloud, want, ret, err);
    pthread_mutex_lock(&cloud->mutex);
    catch_up(cloud);
    what = fate(cloud, "create", want->unique_key, count_key(cloud, want->unique_key), &dice);
    lag_ms = is_calm(cloud) ? 0 : (int64_t)(dice % LAG_MAX_MS);
    if (what == CLOUD_SLOW || cloud->options.create_ms) {
        pthread_mutex_unlock(&cloud->mutex);
        wait_ms(cloud->options.create_ms +
                (what == CLOUD_SLOW ? (int64_t)(dice % SLOW_MAX_MS) : 0));
        pthread_mutex_lock(&cloud->mutex);
    }
    if (what == CLOUD_REFUSED)
        code = berth_fail(err, BERTH_REASON_BACKEND_CAPACITY, "drawn");
    if (!code && (what == CLOUD_LATE || what == CLOUD_REPEATED))
        code = add(cloud, want, landing_ms(cloud, want, dice), lag_ms, &box, err);
    if (!code && what != CLOUD_LATE)
        code = add(cloud, want, berth_now_ms(), lag_ms, &box, err);
    catch_up(cloud);
    if (!code &&
        (what == CLOUD_LATE || what == CLOUD_LOST || (what == CLOUD_REPEATED && dice & 1)))
        code = lose_answer(err);
    if (!code)
        code = copy_sandbox(ret, &box->sandbox, err);
    pthread_mutex_unlock(&cloud->mutex);
    return code;
}

/* ---------------------------------------------------------------- one that is there */

static enum berth_code leave(struct adapter *cloud, const struct box *box,
                             struct adapter_sandbox *ret, struct berth_error *err)
{
    enum berth_code code = copy_sandbox(ret, &box->sandbox, err);

    pthread_mutex_unlock(&cloud->mutex);
    return code;
}

static enum berth_code change(struct adapter *cloud, const char *id,
                              const struct adapter_grant *grant, enum adapter_state state,
                              const char *what, struct adapter_sandbox *ret, bool *ret_changed,
                              struct berth_error *err)
{
    struct box *box;
    enum berth_code code = enter(cloud, id, &box, err);

    if (code)
        return code;
    if (cloud->options.keyed && grant->fence < box->sandbox.fence) {
        pthread_mutex_unlock(&cloud->mutex);
        return berth_fail(err, BERTH_REASON_FENCE_STALE, NULL);
    }
    if (cloud->options.keyed)
        box->sandbox.fence = grant->fence;
    *ret_changed = box->sandbox.state != state;
    box->sandbox.state = state;
    if (*ret_changed)
        say(cloud, what, box, berth_now_ms());
    return leave(cloud, box, ret, err);
}

static enum berth_code connect_box(struct adapter *cloud, const char *id,
                                   const struct adapter_grant *grant,
                                   const struct adapter_timeouts *timeouts, int64_t deadline_ms,
                                   struct adapter_sandbox *ret, bool *ret_resumed,
                                   struct berth_error *err)
{
    (void)timeouts;
    (void)deadline_ms;
    return change(cloud, id, grant, ADAPTER_RUNNING, "resumed", ret, ret_resumed, err);
}

static enum berth_code pause_box(struct adapter *cloud, const char *id,
                                 const struct adapter_grant *grant, int64_t deadline_ms,
                                 struct adapter_sandbox *ret, struct berth_error *err)
{
    bool changed;

    (void)deadline_ms;
    return change(cloud, id, grant, ADAPTER_PAUSED, "paused", ret, &changed, err);
}

static enum berth_code get(struct adapter *cloud, const char *id, int64_t deadline_ms,
                           struct adapter_sandbox *ret, struct berth_error *err)
{
    struct box *box;
    enum berth_code code = enter(cloud, id, &box, err);

    (void)deadline_ms;
    return code ? code : leave(cloud, box, ret, err);
}

static enum berth_code set_timeout(struct adapter *cloud, const char *id,
                                   const struct adapter_grant *grant,
                                   const struct adapter_timeouts *timeouts, bool extend_only,
                                   int64_t deadline_ms, struct adapter_sandbox *ret,
                                   struct berth_error *err)
{
    (void)grant;
    (void)timeouts;
    (void)extend_only;
    return get(cloud, id, deadline_ms, ret, err);
}

static enum berth_code set_network(struct adapter *cloud, const char *id,
                                   const struct adapter_grant *grant,
                                   const struct adapter_network *network, int64_t deadline_ms,
                                   struct adapter_sandbox *ret, struct berth_error *err)
{
    (void)grant;
    (void)network;
    return get(cloud, id, deadline_ms, ret, err);
}

static enum berth_code destroy(struct adapter *cloud, const char *id,
                               const struct adapter_grant *grant,
                               int64_t unless_active_after_ms, int64_t deadline_ms,
                               bool *ret_existed, struct berth_error *err)
{
    enum cloud_fate what;
    struct box *box;
    uint64_t dice;
    int64_t now_ms;

    (void)unless_active_after_ms;
    (void)deadline_ms;
    *ret_existed = false;
    if (enter(cloud, id, &box, NULL))
        return BERTH_OK;
    *ret_existed = true;
    now_ms = berth_now_ms();
    what = fate(cloud, "delete", box->key, box->n_deletes++, &dice);
    if (cloud->options.keyed && grant->fence < box->sandbox.fence) {
        pthread_mutex_unlock(&cloud->mutex);
        return berth_fail(err, BERTH_REASON_FENCE_STALE, NULL);
    }
    if (cloud->options.lie == CLOUD_DELETES_NOTHING)
        what = CLOUD_REFUSED;
    else if (what == CLOUD_LATE)
        box->gone_ms = now_ms + 1 + (int64_t)(dice % LATE_DELETE_MS);
    else if (what != CLOUD_REFUSED)
        box->gone_ms = now_ms;
    catch_up(cloud);
    pthread_mutex_unlock(&cloud->mutex);
    if (cloud->options.lie == CLOUD_DELETES_NOTHING)
        return BERTH_OK;
    if (what == CLOUD_SLOW)
        wait_ms((int64_t)(dice % SLOW_MAX_MS));
    if (what == CLOUD_REFUSED)
        return berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE, "drawn");
    return what == CLOUD_LATE || what == CLOUD_LOST ? lose_answer(err) : BERTH_OK;
}

/* ------------------------------------------------------------------------- lists */

static enum berth_code list(struct adapter *cloud, int64_t deadline_ms,
                            struct adapter_sandbox **ret, size_t *ret_n, bool *ret_complete,
                            struct berth_error *err)
{
    int64_t begin_ns = berth_tick_ns(), now_ms;
    struct adapter_sandbox *found;
    enum berth_code code = BERTH_OK;
    size_t n = 0;
    uint64_t dice;

    (void)deadline_ms;
    pthread_mutex_lock(&cloud->mutex);
    catch_up(cloud);
    now_ms = berth_now_ms();
    *ret_complete = fate(cloud, "list", "", cloud->n_lists++, &dice) != CLOUD_REFUSED;
    found = calloc(cloud->n + 1, sizeof *found);
    if (!found)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (size_t i = cloud->first; !code && i < cloud->n; i++)
        if (is_there(&cloud->boxes[i]) && cloud->boxes[i].listed_ms <= now_ms) {
            code = copy_sandbox(&found[n], &cloud->boxes[i].sandbox, err);
            n += !code;
        }
    fprintf(cloud->log, "%" PRId64 " listed - %zu %" PRId64 "\n", berth_tick_ns(), n,
            berth_tick_ns() - begin_ns);
    pthread_mutex_unlock(&cloud->mutex);
    for (size_t i = 0; code && i < n; i++)
        adapter_sandbox_deinit(&found[i]);
    if (code) {
        free(found);
        return code;
    }
    *ret = found;
    *ret_n = n;
    return BERTH_OK;
}

static enum berth_code list_templates(struct adapter *cloud, int64_t deadline_ms,
                                      struct adapter_template **ret, size_t *ret_n,
                                      struct berth_error *err)
{
    struct adapter_template *one = calloc(1, sizeof *one);

    (void)cloud;
    (void)deadline_ms;
    if (!one)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    snprintf(one->id, sizeof one->id, "base");
    one->state = TEMPLATE_STATE_READY;
    *ret = one;
    *ret_n = 1;
    return BERTH_OK;
}

/* -------------------------------------------------------------------------- life */

static void info(struct adapter *cloud, struct adapter_info *ret)
{
    *ret = (struct adapter_info){
        .isolation = ISOLATION_CONTAINER,
        .timeout_model = TIMEOUT_MODEL_NONE,
        .data_plane = DATA_PLANE_ADAPTER,
        .commands = true,
        .files = true,
        .pause = true,
        .pause_keeps_memory = true,
        .egress_switch = true,
        .inbound_switch = true,
        .keyed_create = cloud->options.keyed,
        .fenced = cloud->options.keyed,
        .create_horizon_ms = cloud->options.horizon_ms,
        .account_id = "chaos",
    };
}

static enum berth_code ready(struct adapter *cloud, struct berth_error *err)
{
    (void)cloud;
    (void)err;
    return BERTH_OK;
}

const struct adapter_ops cloud_ops = {
    .backend = "local", /* in its place */
    .info = info,
    .ready = ready,
    .create = create,
    .connect = connect_box,
    .get = get,
    .list = list,
    .pause = pause_box,
    .set_timeout = set_timeout,
    .set_network = set_network,
    .destroy = destroy,
    .list_templates = list_templates,
};

enum berth_code cloud_new(const struct cloud_options *options, struct adapter **ret,
                          struct berth_error *err)
{
    struct adapter *cloud = calloc(1, sizeof *cloud);

    if (!cloud)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    cloud->options = *options;
    pthread_mutex_init(&cloud->mutex, NULL);
    cloud->log = fopen(options->log_path, "ae");
    if (!cloud->log) {
        cloud_free(cloud);
        return berth_fail_field(err, "log", "cannot be opened");
    }
    setvbuf(cloud->log, NULL, _IOLBF, 0);
    *ret = cloud;
    return BERTH_OK;
}

struct adapter *cloud_free(struct adapter *cloud)
{
    if (!cloud)
        return NULL;
    for (size_t i = 0; i < cloud->n; i++)
        adapter_sandbox_deinit(&cloud->boxes[i].sandbox);
    free(cloud->boxes);
    if (cloud->log)
        fclose(cloud->log);
    pthread_mutex_destroy(&cloud->mutex);
    free(cloud);
    return NULL;
}
