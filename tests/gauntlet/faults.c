/* Loaded into a process by LD_PRELOAD: a clock of the day that is off, writes that fail, and data from sockets that is
 * damaged. TROUPE_FAULTS names a file with a `struct faults`, which the trial changes while the process runs.
 * Build: cc -shared -fPIC -o faults.so faults.c -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct faults {
  int64_t clock_offset; /* nanoseconds */
  int32_t write_errno;  /* 0: writes work */
  int32_t halves;       /* 1: the first half of a write is done before it fails */
  int32_t damage;       /* 1: a byte of each large piece of data from a socket is changed */
  int32_t damaged;      /* how many were, counted here */
  char below[1000];     /* writes fail only in files below this path */
};

static struct faults* faults(void) {
  static struct faults* mapped;
  if (mapped == NULL) {
    const char* const path = getenv("TROUPE_FAULTS");
    const int file = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
      return NULL;
    void* const at = mmap(NULL, sizeof(struct faults), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    mapped = at == MAP_FAILED ? NULL : at;
  }
  return mapped;
}

/* The error of a write to this file; 0: none. */
static int fails(int descriptor) {
  const struct faults* const all = faults();
  if (all == NULL || *(const volatile int32_t*)&all->write_errno == 0)
    return 0;
  char link[64], target[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, target, sizeof target - 1);
  if (length <= 0)
    return 0;
  target[length] = 0;
  return strncmp(target, all->below, strlen(all->below)) == 0 ? all->write_errno : 0;
}

static ssize_t failed(int descriptor, const struct iovec* pieces, off_t at, int error) {
  if (faults()->halves && pieces->iov_len > 1) {
    const size_t half = pieces->iov_len / 2 & ~(size_t)4095;
    /* The other half of what is on the disk is from before. */
    if (at < 0)
      syscall(SYS_write, descriptor, pieces->iov_base, half);
    else
      syscall(SYS_pwrite64, descriptor, pieces->iov_base, half, at);
  }
  errno = error;
  return -1;
}

ssize_t write(int descriptor, const void* data, size_t bytes) {
  const struct iovec piece = {(void*)data, bytes};
  const int error = fails(descriptor);
  return error ? failed(descriptor, &piece, -1, error) : syscall(SYS_write, descriptor, data, bytes);
}

ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t at) {
  const struct iovec piece = {(void*)data, bytes};
  const int error = fails(descriptor);
  return error ? failed(descriptor, &piece, at, error) : syscall(SYS_pwrite64, descriptor, data, bytes, at);
}

ssize_t pwrite64(int descriptor, const void* data, size_t bytes, off64_t at) {
  return pwrite(descriptor, data, bytes, at);
}

ssize_t writev(int descriptor, const struct iovec* pieces, int count) {
  const int error = fails(descriptor);
  return error ? failed(descriptor, pieces, -1, error) : syscall(SYS_writev, descriptor, pieces, count);
}

ssize_t pwritev(int descriptor, const struct iovec* pieces, int count, off_t at) {
  const int error = fails(descriptor);
  return error ? failed(descriptor, pieces, at, error) : syscall(SYS_pwritev, descriptor, pieces, count, at, 0);
}

ssize_t pwritev64(int descriptor, const struct iovec* pieces, int count, off64_t at) {
  return pwritev(descriptor, pieces, count, at);
}

/* Messages are short; what is longer has pages in it. */
enum { least_damaged = 4096 };

/* The C library writes files of its own kind with calls that cannot be replaced. */
size_t fwrite(const void* restrict data, size_t bytes, size_t count, FILE* restrict file) {
  static size_t (*real)(const void*, size_t, size_t, FILE*);
  if (real == NULL)
    real = (size_t(*)(const void*, size_t, size_t, FILE*))dlsym(RTLD_NEXT, "fwrite");
  const int error = bytes * count < least_damaged ? 0 : fails(fileno(file));
  if (error == 0)
    return real(data, bytes, count, file);
  const size_t done = faults()->halves ? real(data, bytes, count / 2, file) : 0;
  errno = error;
  return done;
}

static void damage(const struct iovec* pieces, size_t count, ssize_t bytes) {
  struct faults* const all = bytes < least_damaged ? NULL : faults();
  if (all == NULL || !*(volatile int32_t*)&all->damage)
    return;
  size_t at = (size_t)bytes / 2;
  for (size_t i = 0; i < count; ++i) {
    if (at < pieces[i].iov_len) {
      ((unsigned char*)pieces[i].iov_base)[at] ^= 0xff;
      __sync_fetch_and_add(&all->damaged, 1);
      return;
    }
    at -= pieces[i].iov_len;
  }
}

ssize_t recv(int descriptor, void* into, size_t bytes, int flags) {
  const ssize_t got = syscall(SYS_recvfrom, descriptor, into, bytes, flags, NULL, NULL);
  const struct iovec piece = {into, bytes};
  damage(&piece, 1, got);
  return got;
}

ssize_t recvmsg(int descriptor, struct msghdr* what, int flags) {
  const ssize_t got = syscall(SYS_recvmsg, descriptor, what, flags);
  damage(what->msg_iov, what->msg_iovlen, got);
  return got;
}

static int64_t offset(clockid_t clock) {
  const struct faults* const all = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? faults() : NULL;
  return all == NULL ? 0 : *(const volatile int64_t*)&all->clock_offset;
}

int clock_gettime(clockid_t clock, struct timespec* out) {
  static int (*real)(clockid_t, struct timespec*);
  if (real == NULL)
    real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(clock, out);
  const int64_t off = result == 0 ? offset(clock) : 0;
  if (off != 0) {
    const int64_t second = 1000000000, all = (int64_t)out->tv_sec * second + out->tv_nsec + off;
    out->tv_sec = all / second;
    out->tv_nsec = all % second;
  }
  return result;
}

int gettimeofday(struct timeval* restrict out, void* restrict zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL)
    *out = now.tv_sec;
  return now.tv_sec;
}
