// The clock of a server under test: preloaded, it adds an offset to the time of day, which a test may change at any moment. The
// monotonic clock stays as it is, as when an operator, NTP or a failover to another machine steps a clock.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset; // in microseconds, in a file that the test writes

__attribute__((constructor)) static void begin(void) {
	const char *name = getenv("HEADGATE_CLOCK_FILE");
	int file = name ? open(name, O_RDONLY) : -1;
	if (file < 0) _exit(97);
	void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
	if (page == MAP_FAILED) _exit(98);
	close(file);
	offset = page;
}

int clock_gettime(clockid_t id, struct timespec *at) {
	int failed = (int)syscall(SYS_clock_gettime, id, at); // Others may ask before the loader can look for a function.
	if (failed || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE) || !offset) return failed;
	int64_t ns = at->tv_nsec + *offset % 1000000 * 1000;
	at->tv_sec += *offset / 1000000 + ns / 1000000000;
	at->tv_nsec = ns % 1000000000;
	if (at->tv_nsec < 0) {
		at->tv_nsec += 1000000000;
		at->tv_sec--;
	}
	return 0;
}

int gettimeofday(struct timeval *at, void *zone) {
	struct timespec now;
	int failed = clock_gettime(CLOCK_REALTIME, &now);
	(void)zone;
	at->tv_sec = now.tv_sec;
	at->tv_usec = now.tv_nsec / 1000;
	return failed;
}

time_t time(time_t *at) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (at) *at = now.tv_sec;
	return now.tv_sec;
}
