/* The reference server: a minimal libfuse low-level server with a single-threaded loop and no state.
 *
 * Tree: root, (with depth=2 one directory `agents`,) directories a0 .. a(N-1), in each f0 .. f3 of 200 bytes and
 * `big` of 64 KiB. Attributes are computed from the inode number; every listing is a READDIRPLUS; files are direct_io.
 * Call: c_server MOUNTPOINT [key=value]...   with the keys of the table below; prints "ready" once mounted.
 * SIGTERM and SIGINT unmount and end it.
 */
#define FUSE_USE_VERSION 35
#include <errno.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 5
#define SMALL 200
#define BIG 65536
#define TOP 2  /* inode of `agents` */
#define STEP 16 /* inode of directory i is (i + 1) * STEP, of its file j that plus j + 1 */

static double opt_dirs = 4, opt_depth = 1, opt_dir_attr = 300, opt_dir_entry = 0, opt_top_entry = 0;
static double opt_file_attr = 300, opt_file_entry = 300, opt_permissions = 1;
static const struct {
    const char *key;
    double *value;
} OPTIONS[] = {
    {"dirs", &opt_dirs},           {"depth", &opt_depth},         {"dir_attr", &opt_dir_attr},
    {"dir_entry", &opt_dir_entry}, {"top_entry", &opt_top_entry}, {"file_attr", &opt_file_attr},
    {"file_entry", &opt_file_entry}, {"default_permissions", &opt_permissions},
};
static const char *NAMES[FILES] = {"f0", "f1", "f2", "f3", "big"};
static char content[BIG];

static int is_dir(fuse_ino_t ino) { return ino == FUSE_ROOT_ID || ino == TOP || ino % STEP == 0; }
static size_t size_of(fuse_ino_t ino) { return ino % STEP == FILES ? BIG : SMALL; }
static int holds_agents(fuse_ino_t ino) { return ino == (opt_depth > 1 ? TOP : FUSE_ROOT_ID); }

static void fill(fuse_ino_t ino, struct stat *st) {
    memset(st, 0, sizeof *st);
    st->st_ino = ino;
    st->st_uid = getuid();
    st->st_gid = getgid();
    st->st_nlink = is_dir(ino) ? 2 : 1;
    st->st_mode = is_dir(ino) ? S_IFDIR | 0755 : S_IFREG | 0644;
    st->st_size = is_dir(ino) ? 0 : size_of(ino);
    st->st_blksize = 4096;
}

static double attr_timeout(fuse_ino_t ino) { return is_dir(ino) ? opt_dir_attr : opt_file_attr; }

static void fill_entry(fuse_ino_t ino, struct fuse_entry_param *e) {
    memset(e, 0, sizeof *e);
    e->ino = ino;
    fill(ino, &e->attr);
    e->attr_timeout = attr_timeout(ino);
    e->entry_timeout = ino == TOP ? opt_top_entry : is_dir(ino) ? opt_dir_entry : opt_file_entry;
}

/* The child's inode, or 0. */
static fuse_ino_t child(fuse_ino_t parent, const char *name) {
    if (holds_agents(parent)) {
        char *end;
        long i = name[0] == 'a' && name[1] ? strtol(name + 1, &end, 10) : -1;
        return i >= 0 && i < opt_dirs && !*end ? (fuse_ino_t)(i + 1) * STEP : 0;
    }
    if (parent == FUSE_ROOT_ID) return strcmp(name, "agents") ? 0 : TOP;
    for (int j = 0; j < FILES; j++)
        if (!strcmp(name, NAMES[j])) return parent + j + 1;
    return 0;
}

static void on_init(void *data, struct fuse_conn_info *conn) {
    (void)data;
    conn->want |= conn->capable & FUSE_CAP_READDIRPLUS;
    conn->want &= ~FUSE_CAP_READDIRPLUS_AUTO;
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
    struct fuse_entry_param e;
    fuse_ino_t ino = child(parent, name);
    if (!ino) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    fill_entry(ino, &e);
    fuse_reply_entry(req, &e);
}

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    (void)fi;
    struct stat st;
    fill(ino, &st);
    fuse_reply_attr(req, &st, attr_timeout(ino));
}

static void on_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi) {
    (void)attr, (void)to_set;
    on_getattr(req, ino, fi);
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    fi->fh = ino;
    fi->direct_io = 1;
    fi->keep_cache = 0;
    fuse_reply_open(req, fi);
}

static void on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi) {
    (void)fi;
    size_t all = size_of(ino), from = (size_t)off < all ? (size_t)off : all;
    fuse_reply_buf(req, content + from, size < all - from ? size : all - from);
}

static void on_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi) {
    (void)ino, (void)buf, (void)off, (void)fi;
    fuse_reply_write(req, size);
}

static void on_done(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    (void)ino, (void)fi;
    fuse_reply_err(req, 0);
}

static void on_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    fi->fh = ino;
    fuse_reply_open(req, fi);
}

static void on_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi) {
    (void)fi;
    char buf[size], name[32];
    size_t used = 0;
    off_t count = holds_agents(ino) ? (off_t)opt_dirs : ino == FUSE_ROOT_ID ? 1 : FILES;
    for (; off < count; off++) {
        struct fuse_entry_param e;
        if (holds_agents(ino)) snprintf(name, sizeof name, "a%ld", (long)off);
        else snprintf(name, sizeof name, "%s", ino == FUSE_ROOT_ID ? "agents" : NAMES[off]);
        fill_entry(child(ino, name), &e);
        size_t n = fuse_add_direntry_plus(req, buf + used, size - used, name, &e, off + 1);
        if (n > size - used) break;
        used += n;
    }
    fuse_reply_buf(req, buf, used);
}

static const struct fuse_lowlevel_ops OPS = {
    .init = on_init,       .lookup = on_lookup,   .getattr = on_getattr, .setattr = on_setattr,
    .open = on_open,       .read = on_read,       .write = on_write,     .flush = on_done,
    .release = on_done,    .opendir = on_opendir, .readdirplus = on_readdirplus, .releasedir = on_done,
};

static void set_option(const char *text) {
    const char *eq = strchr(text, '=');
    for (size_t i = 0; eq && i < sizeof OPTIONS / sizeof *OPTIONS; i++)
        if (!strncmp(text, OPTIONS[i].key, eq - text) && !OPTIONS[i].key[eq - text]) {
            *OPTIONS[i].value = atof(eq + 1);
            return;
        }
    fprintf(stderr, "c_server: unknown option %s\n", text);
    exit(2);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: c_server MOUNTPOINT [key=value]...\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) set_option(argv[i]);
    memset(content, 'x', sizeof content);

    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    fuse_opt_add_arg(&args, "c_server");
    fuse_opt_add_arg(&args, "-ofsname=bench-c");
    if (opt_permissions) fuse_opt_add_arg(&args, "-odefault_permissions");
    struct fuse_session *se = fuse_session_new(&args, &OPS, sizeof OPS, NULL);
    if (!se || fuse_set_signal_handlers(se) || fuse_session_mount(se, argv[1])) return 1;
    puts("ready");
    fflush(stdout);
    int rc = fuse_session_loop(se);
    fuse_session_unmount(se);
    fuse_remove_signal_handlers(se);
    fuse_session_destroy(se);
    fuse_opt_free_args(&args);
    return rc < 0;
}
