/* The no-op agent, in C so that its own start costs next to nothing. It stamps CLOCK_MONOTONIC (the clock of Python's
 * time.monotonic) and appends to LOG one line a turn: ARRIVED_NS ANSWERED_NS BYTES, where ARRIVED is when the first
 * bytes of the prompt had been read from stdin and ANSWERED is just before the answer was written to stdout.
 *
 *   c_agent turn LOG             one process a turn: all of stdin is the prompt, the same bytes are the answer
 *   c_agent lines LOG PREFIX     long-lived: each line is a prompt, PREFIX and the line are the answer
 *   c_agent claude LOG [ARG]...  long-lived, speaking just enough claude stream-json; ARGs are the CLI's own
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "c_field.h"

#define MAX (1 << 20)

static char in[MAX + 1], out[4 * MAX];
static size_t filled;
static int log_fd;

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void put(int fd, const char *bytes, size_t n) {
    for (ssize_t w; n; bytes += w, n -= w)
        if ((w = write(fd, bytes, n)) < 0) fail("c_agent: write");
}

/* Reads what is there; 0 at end of file. */
static ssize_t take(void) {
    if (filled == MAX) fail("c_agent: prompt too long");
    ssize_t n = read(0, in + filled, MAX - filled);
    if (n < 0) fail("c_agent: read");
    filled += n;
    in[filled] = 0;
    return n;
}

static void answer(long long arrived, size_t prompt, const char *bytes, size_t n) {
    char line[96];
    long long answered = now();
    put(1, bytes, n);
    put(log_fd, line, snprintf(line, sizeof line, "%lld %lld %zu\n", arrived, answered, prompt));
}

static void turn(void) {
    long long arrived = 0;
    while (take())
        if (!arrived) arrived = now();
    if (filled) answer(arrived, filled, in, filled);
}

static size_t claude(const char *line, const char *session, int *is_prompt) {
    int id, text, uuid;
    const char *id_at = field(line, "\"request_id\"", &id);
    const char *text_at = field(line, "\"content\"", &text), *uuid_at = field(line, "\"uuid\"", &uuid);
    *is_prompt = strstr(line, "\"control_request\"") == NULL && strstr(line, "\"user\"") != NULL;
    if (strstr(line, "\"control_request\""))
        return sprintf(out, "{\"type\":\"control_response\",\"response\":{\"subtype\":\"success\",\"request_id\":\"%.*s\","
                       "\"response\":{\"session_state\":\"idle\",\"claude_code_version\":\"2.1.332\"}}}\n", id, id_at);
    if (!*is_prompt) return 0;
    return sprintf(out,
                   "{\"type\":\"command_lifecycle\",\"command_uuid\":\"%.*s\",\"state\":\"started\",\"session_id\":\"%s\"}\n"
                   "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"terminal_reason\":\"completed\","
                   "\"num_turns\":1,\"result\":\"%.*s\",\"total_cost_usd\":0,\"usage\":{\"input_tokens\":1,"
                   "\"output_tokens\":1},\"session_id\":\"%s\"}\n"
                   "{\"type\":\"command_lifecycle\",\"command_uuid\":\"%.*s\",\"state\":\"completed\",\"session_id\":\"%s\"}\n",
                   uuid, uuid_at, session, text, text_at, session, uuid, uuid_at, session);
}

/* PREFIX for plain lines, NULL for claude. */
static void lines(const char *prefix, const char *session) {
    long long arrived = 0;
    while (take()) {
        char *line = in, *end;
        if (!arrived) arrived = now();
        for (; (end = memchr(line, '\n', in + filled - line)); line = end + 1, arrived = now()) {
            size_t n = end + 1 - line, m;
            int is_prompt = 1;
            *end = 0;
            if (prefix) m = sprintf(out, "%s%s\n", prefix, line);
            else m = claude(line, session, &is_prompt);
            if (is_prompt) answer(arrived, n, out, m);
            else put(1, out, m);
        }
        filled = in + filled - line;
        memmove(in, line, filled);
        if (!filled) arrived = 0;
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 2 ? argv[1] : "", *session = "00000000-0000-4000-8000-000000000000";
    if (argc > 2 && (log_fd = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) < 0) fail(argv[2]);
    for (int i = 3; i < argc; i++) {
        if (!strcmp(argv[i], "--version")) return puts("2.1.332 (Claude Code)") < 0;
        if (i + 1 < argc && (!strcmp(argv[i], "--session-id") || !strcmp(argv[i], "--resume"))) session = argv[i + 1];
    }
    if (!strcmp(mode, "turn") && argc == 3) turn();
    else if (!strcmp(mode, "lines") && argc == 4) lines(argv[3], NULL);
    else if (!strcmp(mode, "claude")) lines(NULL, session);
    else {
        fprintf(stderr, "usage: c_agent turn LOG | lines LOG PREFIX | claude LOG [ARG]...\n");
        return 2;
    }
    return 0;
}
