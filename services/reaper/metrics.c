/* metrics.c - what the reaper tells of itself, as Prometheus text. */
#include <inttypes.h>
#include <stdio.h>

#include "services/reaper/reaper.h"
#include "services/reaper/usage.h"

static void put(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_one(FILE *out, const char *name, const char *type, const char *help,
                    uint64_t value)
{
    put(out, name, type, help);
    fprintf(out, "%s %" PRIu64 "\n", name, value);
}

static void put_reasons(FILE *out, const char *name, const char *help, const uint64_t *counts)
{
    put(out, name, "counter", help);
    for (int why = 0; why < REAPER_N_WHY; why++)
        if (counts[why])
            fprintf(out, "%s{reason=\"%s\"} %" PRIu64 "\n", name,
                    reaper_why_name((enum reaper_why)why), counts[why]);
}

static void put_counts(FILE *out, struct reaper *reaper)
{
    put_one(out, "berth_reaper_sweeps_total", "counter", "Sweeps.", reaper->counts.sweeps);
    put(out, "berth_reaper_sweep_duration_seconds", "gauge", "How long the last sweep took.");
    fprintf(out, "berth_reaper_sweep_duration_seconds %" PRId64 ".%03d\n",
            reaper->counts.last_ms / 1000, (int)(reaper->counts.last_ms % 1000));
    put_reasons(out, "berth_reaper_deleted_total", "Sandboxes and sessions deleted, by reason.",
                reaper->counts.deleted);
    put_reasons(out, "berth_reaper_failed_total", "Acts that failed, by reason.",
                reaper->counts.failed);
    put_one(out, "berth_reaper_adopted_total", "counter",
            "Sandboxes bound to the sessions of their tags.", reaper->counts.adopted);
    put_one(out, "berth_reaper_paused_total", "counter", "Idle sandboxes paused.",
            reaper->counts.paused);
    put_one(out, "berth_reaper_duplicates_paused_total", "counter",
            "Sandboxes paused that ran beside the bound one of their session.",
            reaper->counts.stilled);
    put_one(out, "berth_reaper_observed_total", "counter",
            "Changes that backends or their operators had made, written down by sweeps.",
            reaper->counts.observed);
    put_one(out, "berth_reaper_configs_skipped_total", "counter",
            "Configs skipped by sweeps, there being no whole list.", reaper->counts.skipped);
    put_one(out, "berth_reaper_orphans_found_total", "counter",
            "Sandboxes that no session had bound when they were first seen. From 0 with each "
            "process; a new leader counts those that are still there once more.",
            reaper->counts.orphans_found);
    put_one(out, "berth_reaper_duplicates_found_total", "counter",
            "The same, beside the bound one of their session.",
            reaper->counts.duplicates_found);
    put_one(out, "berth_reaper_orphans", "gauge",
            "Sandboxes that no session has bound, at the last sweep.", reaper->counts.orphans);
    put_one(out, "berth_reaper_duplicates", "gauge",
            "Sandboxes beside the bound one of their session, at the last sweep.",
            reaper->counts.duplicates_seen);
    put_one(out, "berth_reaper_untagged", "gauge",
            "Sandboxes without valid tags, at the last sweep.", reaper->counts.untagged);
}

char *reaper_metrics(struct reaper *reaper)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    put_one(out, "berth_reaper_leader", "gauge", "1 on the replica that sweeps.",
            reaper_leader_term(reaper->leader) != 0);
    pthread_mutex_lock(&reaper->counting);
    {
        /* Of the leader alone: two who tell the same would be added up. */
        BERTH_AUTO(free)
        char *usage =
            reaper_leader_term(reaper->leader) ? reaper_usage_metrics(reaper->usage) : NULL;

        put_counts(out, reaper);
        fputs(usage ? usage : "", out);
    }
    pthread_mutex_unlock(&reaper->counting);
    if (fclose(out)) {
        free(text);
        return NULL;
    }
    return text;
}
