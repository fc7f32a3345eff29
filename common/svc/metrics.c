#include "common/svc/metrics.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <stdio.h>
#include <sys/resource.h>

#include "common/svc/address.h"
#include "common/time/time.h"

enum { CONNECTIONS_MAX = 16, IDLE_SECONDS = 10 };

struct svc_metrics {
    struct svc_metrics_source source;
    struct MHD_Daemon *daemon;
    int64_t start_ms;
};

static void put_gauge(FILE *file, const char *name, const char *kind, const char *help,
                      double value)
{
    fprintf(file, "# HELP %s %s\n# TYPE %s %s\n%s %.17g\n", name, help, name, kind, name,
            value);
}

/* Pages of virtual and resident memory, from /proc. */
static void read_memory(double *ret_virtual, double *ret_resident)
{
    unsigned long pages[2] = {0, 0};
    FILE *file = fopen("/proc/self/statm", "re");
    double page = (double)sysconf(_SC_PAGESIZE);

    if (file && fscanf(file, "%lu %lu", &pages[0], &pages[1]) != 2)
        pages[0] = pages[1] = 0;
    if (file)
        fclose(file);
    *ret_virtual = (double)pages[0] * page;
    *ret_resident = (double)pages[1] * page;
}

static double count_entries(const char *path)
{
    DIR *folder = opendir(path);
    double n = 0;

    if (!folder)
        return 0;
    while (readdir(folder))
        n++;
    closedir(folder);
    return n - 2; /* "." and ".." */
}

static double cpu_seconds(void)
{
    struct rusage usage = {0};

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void put_process(FILE *file, const struct svc_metrics *metrics)
{
    struct rlimit files = {0};
    double virtual_bytes, resident_bytes;

    read_memory(&virtual_bytes, &resident_bytes);
    getrlimit(RLIMIT_NOFILE, &files);
    put_gauge(file, "process_cpu_seconds_total", "counter", "CPU time, user and system.",
              cpu_seconds());
    put_gauge(file, "process_start_time_seconds", "gauge", "Start, seconds since the epoch.",
              (double)metrics->start_ms / 1e3);
    put_gauge(file, "process_virtual_memory_bytes", "gauge", "Address space.", virtual_bytes);
    put_gauge(file, "process_resident_memory_bytes", "gauge", "Resident memory.",
              resident_bytes);
    put_gauge(file, "process_open_fds", "gauge", "Open file descriptors.",
              count_entries("/proc/self/fd") - 1); /* not the one that counts */
    put_gauge(file, "process_max_fds", "gauge", "Limit of file descriptors.",
              (double)files.rlim_cur);
    put_gauge(file, "process_threads", "gauge", "Threads.", count_entries("/proc/self/task"));
    fprintf(file,
            "# HELP berth_build_info Which program this is.\n# TYPE berth_build_info gauge\n"
            "berth_build_info{service=\"%s\",version=\"%s\",deployment=\"%s\"} 1\n",
            metrics->source.service->name, BERTH_VERSION, metrics->source.deployment);
}

/* Owned text of one scrape; NULL: no memory. */
static char *scrape(struct svc_metrics *metrics, size_t *ret_size)
{
    const struct svc_metrics_source *source = &metrics->source;
    BERTH_AUTO(free) char *server = berth_server_metrics(source->server);
    BERTH_AUTO(free) char *own = NULL;
    char *text = NULL;
    FILE *file = open_memstream(&text, ret_size);

    if (!file)
        return NULL;
    if (source->service->metrics)
        own = source->service->metrics(source->state);
    put_process(file, metrics);
    fprintf(file, "%s%s", server ? server : "", own ? own : "");
    if (fclose(file) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, char *text,
                              size_t size)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result result;

    if (!response) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type",
                            "text/plain; version=0.0.4; charset=utf-8");
    result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state)
{
    static const char not_found[] = "GET /metrics is all there is here\n";
    size_t size = sizeof not_found - 1;
    char *text;

    (void)version;
    (void)upload;
    if (!*state) { /* headers are there, a body may follow */
        *state = arg;
        return MHD_YES;
    }
    if (*upload_size > 0) { /* a body that nobody asked for */
        *upload_size = 0;
        return MHD_YES;
    }
    if (strcmp(url, "/metrics") == 0 &&
        (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)) {
        text = scrape(arg, &size);
        return text ? answer(connection, MHD_HTTP_OK, text, size) : MHD_NO;
    }
    text = strdup(not_found);
    return text ? answer(connection, MHD_HTTP_NOT_FOUND, text, size) : MHD_NO;
}

enum berth_code svc_metrics_new(const char *address, const struct svc_metrics_source *source,
                                struct svc_metrics **ret, struct berth_error *err)
{
    struct sockaddr_storage sockaddr;
    unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_ITC;
    struct svc_metrics *metrics;
    enum berth_code code = svc_parse_loopback("metrics_listen", address, &sockaddr, err);

    if (code)
        return code;
    metrics = calloc(1, sizeof *metrics);
    if (!metrics)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    metrics->source = *source;
    metrics->start_ms = berth_now_ms();
    if (sockaddr.ss_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    metrics->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, metrics, MHD_OPTION_SOCK_ADDR,
        (struct sockaddr *)&sockaddr, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_END);
    if (!metrics->daemon) {
        code = berth_fail_field(err, "metrics_listen", "cannot listen on %s: %s", address,
                                strerror(errno));
        free(metrics);
        return code;
    }
    *ret = metrics;
    return BERTH_OK;
}

struct svc_metrics *svc_metrics_free(struct svc_metrics *metrics)
{
    if (!metrics)
        return NULL;
    MHD_stop_daemon(metrics->daemon);
    free(metrics);
    return NULL;
}
