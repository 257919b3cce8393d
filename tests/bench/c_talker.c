/* A CLI that talks: just enough claude stream-json to be started, and a turn of as many deltas as its prompt says.
 *
 *   c_talker [ARG]...            the prompt is `N USEC SIZE`: N deltas of SIZE bytes, one each USEC microseconds
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "c_field.h"

static char line[1 << 20], out[1 << 21], text[1 << 16];

static void say(int n) {
    if (write(1, out, n) != n) exit(1);
}

static void talk(void) {
    int n;
    const char *at = field(line, "\"uuid\"", &n);
    long deltas, pause, size;
    struct timespec next;
    char uuid[200];
    snprintf(uuid, sizeof uuid, "%.*s", n, at);
    if (sscanf(field(line, "\"content\"", &n), "%ld %ld %ld", &deltas, &pause, &size) != 3) exit(2);
    if (size >= (long)sizeof text) exit(2);
    memset(text, 'x', size);
    text[size] = 0;
    say(sprintf(out, "{\"type\":\"command_lifecycle\",\"command_uuid\":\"%s\",\"state\":\"started\"}\n", uuid));
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (long i = 0; i < deltas; i++) {
        say(sprintf(out,
                    "{\"type\":\"stream_event\",\"event\":{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":"
                    "\"text_delta\",\"text\":\"%s\"}},\"parent_tool_use_id\":null,\"session_id\":\"00000000-0000-4000-8000-"
                    "000000000000\",\"uuid\":\"%s\"}\n", text, uuid));
        next.tv_nsec += pause * 1000;
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        if (pause) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
    say(sprintf(out,
                "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"terminal_reason\":\"completed\",\"num_turns\""
                ":1,\"result\":\"%ld deltas\",\"total_cost_usd\":0,\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}\n"
                "{\"type\":\"command_lifecycle\",\"command_uuid\":\"%s\",\"state\":\"completed\"}\n", deltas, uuid));
}

int main(void) {
    while (fgets(line, sizeof line, stdin)) {
        int n;
        if (strstr(line, "\"control_request\"")) {
            const char *id = field(line, "\"request_id\"", &n);
            say(sprintf(out, "{\"type\":\"control_response\",\"response\":{\"subtype\":\"success\",\"request_id\":\"%.*s\","
                             "\"response\":{\"claude_code_version\":\"2.1.332\"}}}\n", n, id));
        } else if (strstr(line, "\"user\"")) {
            talk();
        }
    }
    return 0;
}
