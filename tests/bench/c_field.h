/* The raw text of the JSON string after KEY in LINE (escapes kept), its length in *n; "" when absent. */
static const char *field(const char *line, const char *key, int *n) {
    const char *p = strstr(line, key);
    *n = 0;
    if (!p) return "";
    p += strlen(key);
    p += strspn(p, ": ");
    if (*p++ != '"') return "";
    while (p[*n] && p[*n] != '"') *n += p[*n] == '\\' && p[*n + 1] ? 2 : 1;
    return p;
}
