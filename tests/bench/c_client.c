/* The client, in C so that it is not the bottleneck: repeats one operation and prints "CYCLES SECONDS".
 *
 * Call: c_client OP PATH EXPECT n=CYCLES|t=SECONDS
 *   open   open + read 4 KiB + close; EXPECT = bytes the read must give
 *   stat   stat by path; EXPECT = st_size
 *   write  open(O_WRONLY|O_TRUNC) + write EXPECT bytes + close
 *   pread  pread of EXPECT bytes at 0 on one held descriptor
 *   find   recursive readdir + fstatat below PATH; EXPECT = entries found
 * Any short or failed result ends it with a sentence and exit 1.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char buf[1 << 20];
static const char *path;
static long expect;
static int held = -1;

static void fail(const char *what, long got) {
    fprintf(stderr, "c_client: %s %s: got %ld, expected %ld (%s)\n", what, path, got, expect, strerror(errno));
    exit(1);
}

static void want(const char *what, long got) {
    if (got != expect) fail(what, got);
}

static int opened(int flags) {
    int fd = open(path, flags);
    if (fd < 0) fail("open", fd);
    return fd;
}

static void closed(int fd) {
    if (close(fd)) fail("close", -1);
}

static void do_open(void) {
    int fd = opened(O_RDONLY);
    want("read", read(fd, buf, 4096));
    closed(fd);
}

static void do_stat(void) {
    struct stat st;
    want("stat", stat(path, &st) ? -1 : st.st_size);
}

static void do_write(void) {
    int fd = opened(O_WRONLY | O_TRUNC);
    want("write", write(fd, buf, expect));
    closed(fd);
}

static void do_pread(void) {
    if (held < 0) held = opened(O_RDONLY);
    want("pread", pread(held, buf, expect, 0));
}

static long walk(int fd) {
    DIR *dir = fdopendir(fd);
    long found = 0;
    if (!dir) fail("opendir", -1);
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW)) fail("fstatat", -1);
        found++;
        if (!S_ISDIR(st.st_mode)) continue;
        int below = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY);
        if (below < 0) fail("openat", below);
        found += walk(below);
    }
    closedir(dir);
    return found;
}

static void do_find(void) { want("find", walk(opened(O_RDONLY | O_DIRECTORY))); }

static const struct {
    const char *name;
    void (*run)(void);
} OPS[] = {{"open", do_open}, {"stat", do_stat}, {"write", do_write}, {"pread", do_pread}, {"find", do_find}};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    void (*run)(void) = NULL;
    for (size_t i = 0; argc == 5 && i < sizeof OPS / sizeof *OPS; i++)
        if (!strcmp(argv[1], OPS[i].name)) run = OPS[i].run;
    if (!run || (strncmp(argv[4], "n=", 2) && strncmp(argv[4], "t=", 2))) {
        fprintf(stderr, "usage: c_client open|stat|write|pread|find PATH EXPECT n=CYCLES|t=SECONDS\n");
        return 2;
    }
    path = argv[2];
    expect = atol(argv[3]);
    if (expect < 0 || expect > (long)sizeof buf) fail("size for", -1);
    int timed = argv[4][0] == 't';
    double limit = atof(argv[4] + 2), start = now();
    long cycles = 0;
    while (timed ? cycles % 16 || now() - start < limit : cycles < limit) {
        run();
        cycles++;
    }
    printf("%ld %.9f\n", cycles, now() - start);
    return 0;
}
