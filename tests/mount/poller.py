"""One program that sleeps in poll(2) on many files, and says whenever it was woken, and for which of them.

Usage: python poller.py poll|select|epoll FILE… It reads each to its end, says `asleep`, and sleeps. Woken, it says the
numbers of the files that are readable, reads them, and sleeps again. It imports nothing of the project: 50 are started.
"""

import os
import select
import sys


def read(fd: int, grows: bool) -> None:
    if grows:
        while os.read(fd, 1 << 16):
            pass
    else:
        os.pread(fd, 1 << 20, 0)


how, *paths = sys.argv[1:]
fds = [os.open(path, os.O_RDONLY | os.O_NONBLOCK) for path in paths]
grows = [path.endswith(("/events", "/chat")) for path in paths]
for number, fd in enumerate(fds):
    read(fd, grows[number])
poller = select.poll() if how == "poll" else select.epoll()
for fd in fds:
    poller.register(fd, select.POLLIN)
print("asleep", flush=True)
while True:
    ready = select.select(fds, [], [])[0] if how == "select" else [fd for fd, _ in poller.poll()]
    print(*sorted(fds.index(fd) for fd in ready), flush=True)
    for fd in ready:
        read(fd, grows[fds.index(fd)])
