#include "common/rpc/metrics.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/errors/errors.h"

enum { TEXT_SIZE_MIN = 4096 };

static const struct {
    int64_t ns;
    const char *le;
} buckets[RPC_N_BUCKETS] = {
    {500 * INT64_C(1000), "0.0005"},
    {1000 * INT64_C(1000), "0.001"},
    {2500 * INT64_C(1000), "0.0025"},
    {5 * INT64_C(1000000), "0.005"},
    {10 * INT64_C(1000000), "0.01"},
    {25 * INT64_C(1000000), "0.025"},
    {50 * INT64_C(1000000), "0.05"},
    {100 * INT64_C(1000000), "0.1"},
    {250 * INT64_C(1000000), "0.25"},
    {500 * INT64_C(1000000), "0.5"},
    {1000 * INT64_C(1000000), "1"},
    {2500 * INT64_C(1000000), "2.5"},
    {10 * INT64_C(1000000000), "10"},
    {60 * INT64_C(1000000000), "60"},
    {INT64_MAX, "+Inf"},
};

void rpc_metrics_done(struct rpc_metrics *metrics, unsigned code, int64_t ns)
{
    size_t i = 0;

    while (ns > buckets[i].ns)
        i++;
    atomic_fetch_add_explicit(&metrics->buckets[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&metrics->calls[code < RPC_N_CODES ? code : BERTH_UNKNOWN], 1,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&metrics->sum_us, (uint64_t)ns / 1000, memory_order_relaxed);
    atomic_fetch_sub_explicit(&metrics->in_flight, 1, memory_order_relaxed);
}

void rpc_text_add(struct rpc_text *text, const char *fmt, ...)
{
    size_t room = text->size - text->len;
    va_list args, again;
    int len;

    if (text->size && !text->data)
        return;
    va_start(args, fmt);
    va_copy(again, args);
    len = vsnprintf(text->data ? text->data + text->len : NULL, room, fmt, args);
    va_end(args);
    if (len >= 0 && (size_t)len >= room) {
        size_t size = 2 * (text->size + (size_t)len) + TEXT_SIZE_MIN;
        char *data = realloc(text->data, size);

        if (!data)
            free(text->data);
        text->data = data;
        text->size = size;
        if (data)
            vsnprintf(data + text->len, size - text->len, fmt, again);
    }
    va_end(again);
    if (len > 0)
        text->len += (size_t)len;
}

static void histogram_text(struct rpc_text *text, const char *method,
                           struct rpc_metrics *metrics)
{
    uint64_t count = 0;

    for (size_t i = 0; i < RPC_N_BUCKETS; i++) {
        count += atomic_load(&metrics->buckets[i]);
        rpc_text_add(text, "berth_rpc_seconds_bucket{method=\"%s\",le=\"%s\"} %llu\n", method,
                     buckets[i].le, (unsigned long long)count);
    }
    rpc_text_add(text, "berth_rpc_seconds_sum{method=\"%s\"} %.6f\n", method,
                 (double)atomic_load(&metrics->sum_us) / 1e6);
    rpc_text_add(text, "berth_rpc_seconds_count{method=\"%s\"} %llu\n", method,
                 (unsigned long long)count);
}

void rpc_metrics_text(struct rpc_text *text, const char *const *methods,
                      struct rpc_metrics *const *metrics, size_t n)
{
    rpc_text_add(text, "# HELP berth_rpc_calls_total Calls answered, by method and status.\n"
                       "# TYPE berth_rpc_calls_total counter\n");
    for (size_t i = 0; i < n; i++)
        for (unsigned code = 0; code < RPC_N_CODES; code++) {
            uint64_t calls = atomic_load(&metrics[i]->calls[code]);

            if (calls)
                rpc_text_add(text, "berth_rpc_calls_total{method=\"%s\",code=\"%s\"} %llu\n",
                             methods[i], berth_code_name((enum berth_code)code),
                             (unsigned long long)calls);
        }
    rpc_text_add(text, "# HELP berth_rpc_in_flight Calls in progress.\n"
                       "# TYPE berth_rpc_in_flight gauge\n");
    for (size_t i = 0; i < n; i++)
        rpc_text_add(text, "berth_rpc_in_flight{method=\"%s\"} %lld\n", methods[i],
                     (long long)atomic_load(&metrics[i]->in_flight));
    rpc_text_add(text, "# HELP berth_rpc_seconds Time from arrival to status.\n"
                       "# TYPE berth_rpc_seconds histogram\n");
    for (size_t i = 0; i < n; i++)
        if (atomic_load(&metrics[i]->sum_us))
            histogram_text(text, methods[i], metrics[i]);
}
