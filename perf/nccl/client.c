#define _GNU_SOURCE
#include "client.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { limit_s = 60 };

static void path_of_log(pid_t process, char* path, size_t room) {
  snprintf(path, room, "/tmp/pith-client-%d.log", (int)process);
}

static void run_child(int rank, int size, struct client_shared* shared,
                      const char* const* environment, client_body body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(limit_s);
  putenv("PITH_IFNAME=lo");
  for (; environment && *environment; ++environment) putenv((char*)*environment);
  struct client me = {rank, size, shared};
  body(&me);
  exit(0);
}

void client_run(const char* name, int size, const char* const* environment, client_body body) {
  struct client_shared* shared =
      mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) exit(1);
  fflush(NULL);
  pid_t children[client_ranks_max];
  for (int rank = 0; rank < size; ++rank) {
    children[rank] = fork();
    if (children[rank] == 0) run_child(rank, size, shared, environment, body);
  }
  int bad = 0;
  for (int left = size; left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    if (status != 0) {
      bad = 1;
      for (int rank = 0; rank < size; ++rank) {
        if (children[rank] == ended) {
          fprintf(stderr, "%s: rank %d: %s %d\n", name, rank,
                  WIFSIGNALED(status) ? "signal" : "exit status",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        }
      }
      for (int rank = 0; rank < size; ++rank) kill(children[rank], SIGALRM);
    }
  }
  for (int rank = 0; rank < size; ++rank) {
    char path[64];
    path_of_log(children[rank], path, sizeof path);
    unlink(path); /* if it exists, even if the rank failed */
  }
  munmap(shared, sizeof *shared);
  printf("%s, %d ranks: %s\n", name, size, bad ? "FAILED" : "ok");
  if (bad) exit(1);
}

ncclUniqueId client_id(struct client* me, int which) {
  struct client_shared* shared = me->shared;
  if (me->rank == 0 && !shared->id_ready[which]) {
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    shared->id[which] = id;
    __sync_synchronize();
    shared->id_ready[which] = 1;
  }
  while (!shared->id_ready[which]) usleep(200);
  __sync_synchronize();
  return shared->id[which];
}

ncclComm_t client_join(struct client* me) {
  ncclComm_t comm = NULL;
  OK(ncclCommInitRank(&comm, me->size, client_id(me, 0), me->rank));
  return comm;
}

void client_log(void) {
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_FILE", "/tmp/pith-client-%p.log", 1);
}

void client_take_log(struct client* me, char* text, size_t room) {
  char path[64];
  path_of_log(getpid(), path, sizeof path);
  FILE* file = fopen(path, "r");
  CHECK(file != NULL);
  text[fread(text, 1, room - 1, file)] = '\0';
  fclose(file);
}

int client_times_in(const char* text, const char* words) {
  int times = 0;
  for (; (text = strstr(text, words)) != NULL; ++text) ++times;
  return times;
}

void client_meet(struct client* me, int which) {
  __sync_fetch_and_add(&me->shared->arrived[which], 1);
  while (me->shared->arrived[which] < me->size) usleep(200);
}
