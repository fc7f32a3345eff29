#include "common/redis/internal.h"

#include <stdio.h>

static char *slot(struct redis_words *words, size_t size)
{
    char *word;

    if (words->failed)
        return NULL;
    if (words->n == words->room) {
        size_t room = words->room ? words->room * 2 : 32;
        char **argv = realloc(words->argv, room * sizeof *argv);
        size_t *sizes;

        if (argv)
            words->argv = argv;
        sizes = argv ? realloc(words->sizes, room * sizeof *sizes) : NULL;
        if (sizes) {
            words->sizes = sizes;
            words->room = room;
        }
    }
    word = words->n < words->room ? malloc(size + 1) : NULL;
    if (!word) {
        words->failed = true;
        return NULL;
    }
    word[size] = 0;
    words->argv[words->n] = word;
    words->sizes[words->n++] = size;
    return word;
}

void redis_words_add(struct redis_words *words, const void *data, size_t size)
{
    char *word = slot(words, size);

    if (word && size > 0)
        memcpy(word, data, size);
}

void redis_words_add_number(struct redis_words *words, size_t number)
{
    char text[24];

    redis_words_add(words, text, (size_t)snprintf(text, sizeof text, "%zu", number));
}

void redis_words_set_number(struct redis_words *words, size_t index, size_t number)
{
    char text[24], *word;
    int size = snprintf(text, sizeof text, "%zu", number);

    if (words->failed)
        return;
    word = strdup(text);
    if (!word) {
        words->failed = true;
        return;
    }
    free(words->argv[index]);
    words->argv[index] = word;
    words->sizes[index] = (size_t)size;
}

void redis_words_add_marked(struct redis_words *words, char mark, const void *data, size_t size)
{
    char *word = slot(words, size + 1);

    if (!word)
        return;
    word[0] = mark;
    if (size > 0)
        memcpy(word + 1, data, size);
}

void redis_words_deinit(struct redis_words *words)
{
    for (size_t i = 0; i < words->n; i++)
        free(words->argv[i]);
    free(words->argv);
    free(words->sizes);
    *words = (struct redis_words){0};
}
