#include "tests/component/http/names.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { NAMES_MAX = 16, ANSWERS_MAX = 4 };

static struct {
    char name[64];
    char answers[ANSWERS_MAX][256];
    unsigned n_answers, asked;
} names[NAMES_MAX];
static unsigned n_names, all_asked;
static int delay_ms;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void names_set(const char *name, const char *const *answers, unsigned n_answers)
{
    pthread_mutex_lock(&mutex);
    snprintf(names[n_names].name, sizeof names[0].name, "%s", name);
    for (unsigned i = 0; i < n_answers; i++)
        snprintf(names[n_names].answers[i], sizeof names[0].answers[0], "%s", answers[i]);
    names[n_names].n_answers = n_answers;
    names[n_names++].asked = 0;
    pthread_mutex_unlock(&mutex);
}

void names_clear(void)
{
    pthread_mutex_lock(&mutex);
    n_names = all_asked = 0;
    delay_ms = 0;
    pthread_mutex_unlock(&mutex);
}

unsigned names_asked(const char *name)
{
    unsigned asked = 0;

    pthread_mutex_lock(&mutex);
    for (unsigned i = 0; name && i < n_names; i++)
        if (strcmp(names[i].name, name) == 0)
            asked = names[i].asked;
    if (!name)
        asked = all_asked;
    pthread_mutex_unlock(&mutex);
    return asked;
}

void names_delay(int ms)
{
    pthread_mutex_lock(&mutex);
    delay_ms = ms;
    pthread_mutex_unlock(&mutex);
}

/* Longest first letter wins no prize here: a linear search. False: no such name. */
static int answer_of(const char *node, char *ret, size_t size)
{
    int found = 0, delay;

    pthread_mutex_lock(&mutex);
    all_asked++;
    for (unsigned i = 0; i < n_names && !found; i++) {
        unsigned at = names[i].asked;

        if (strcasecmp(names[i].name, node) != 0)
            continue;
        found = 1;
        names[i].asked++;
        if (at >= names[i].n_answers)
            at = names[i].n_answers - 1;
        snprintf(ret, size, "%s", names[i].answers[at]);
    }
    delay = delay_ms;
    pthread_mutex_unlock(&mutex);
    if (delay)
        nanosleep(
            &(struct timespec){.tv_sec = delay / 1000, .tv_nsec = delay % 1000 * 1000000L},
            NULL);
    return found && *ret;
}

static struct addrinfo *entry_of(const char *text, unsigned short port, int type)
{
    struct node {
        struct addrinfo info;
        struct sockaddr_storage address;
    } *node = calloc(1, sizeof *node);
    struct sockaddr_in *in = (struct sockaddr_in *)&node->address;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&node->address;

    node->info.ai_socktype = type ? type : SOCK_STREAM;
    node->info.ai_protocol = IPPROTO_TCP;
    node->info.ai_addr = (struct sockaddr *)&node->address;
    if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        node->info.ai_addrlen = sizeof *in;
    } else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(port);
        node->info.ai_addrlen = sizeof *in6;
    } else {
        free(node);
        return NULL;
    }
    node->info.ai_family = node->address.ss_family;
    return &node->info;
}

/* NOLINTNEXTLINE: takes the place of libc's */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    unsigned short port = service ? (unsigned short)strtol(service, NULL, 10) : 0;
    int type = hints ? hints->ai_socktype : 0;
    char answers[256] = "", *save = NULL;
    struct addrinfo *list = node ? entry_of(node, port, type) : NULL, **last = &list;

    if (list) {
        *ret = list;
        return 0;
    }
    if (!node || !answer_of(node, answers, sizeof answers))
        return EAI_NONAME;
    for (char *text = strtok_r(answers, " ", &save); text; text = strtok_r(NULL, " ", &save)) {
        *last = entry_of(text, port, type);
        if (*last && (!hints || !hints->ai_family || hints->ai_family == (*last)->ai_family))
            last = &(*last)->ai_next;
        else
            free(*last);
    }
    *last = NULL;
    *ret = list;
    return list ? 0 : EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *list)
{
    while (list) {
        struct addrinfo *next = list->ai_next;

        free(list);
        list = next;
    }
}
