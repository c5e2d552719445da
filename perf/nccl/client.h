/* Clients of NCCL in C, written as by a user, but for host memory: each case runs in one forked
 * process per rank. The processes share only ids and a few numbers.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* NVIDIA's header, to compile a program as its users do, or our own. */
#ifdef CLIENT_OF_NVIDIA
#define NCCL_OS_LINUX
#include <nccl.h>
#ifndef NCCL_API_MAGIC
#define NCCL_API_MAGIC 0xcafebeefu
#endif
#else
#include "nccl/abi.h"
#endif
#if !defined(CLIENT_OF_NVIDIA) || NCCL_VERSION_CODE >= 22900
#define CLIENT_KNOWS_229
#endif
#ifdef CLIENT_OF_NVIDIA /* declared in nccl_device.h, which is C++ */
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void* requirements, void* out);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** out);
#endif

enum { client_ids = 8, client_ranks_max = 16, client_notes = 64 };

/* Shared by the processes of a case; zero-initialised. */
struct client_shared {
  volatile int id_ready[client_ids];
  ncclUniqueId id[client_ids];
  volatile int arrived[client_notes];
  volatile double note[client_ranks_max][client_notes];
};

struct client {
  int rank, size;
  struct client_shared* shared;
};

typedef void (*client_body)(struct client* me);

/* Runs the body in `size` processes; if one fails, exits with a message. `environment`: NAME=VALUE
 * strings, terminated by NULL, or NULL. */
void client_run(const char* name, int size, const char* const* environment, client_body body);

/* The same id in all processes, made by rank 0. */
ncclUniqueId client_id(struct client* me, int which);
ncclComm_t client_join(struct client* me);
/* Makes NCCL log to a file at level INFO, for client_take_log; deleted at the end of the case. */
void client_log(void);
void client_take_log(struct client* me, char* text, size_t room);
int client_times_in(const char* text, const char* words);
/* Waits until all processes have called it with this number. */
void client_meet(struct client* me, int which);

#define CHECK(condition)                                                                     \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      fprintf(stderr, "%s:%d: rank %d: %s (last error: %s)\n", __FILE__, __LINE__, me->rank, \
              #condition, ncclGetLastError(NULL));                                           \
      exit(1);                                                                               \
    }                                                                                        \
  } while (0)
#define OK(call) CHECK((call) == ncclSuccess)
#define FAILS(code, call) CHECK((call) == (code))
