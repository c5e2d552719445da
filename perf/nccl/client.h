/* Clients of NCCL in C, as a user would write them, but for host memory: each case runs in as many
 * forked processes as it has ranks, which share nothing but an id and a few numbers.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* NVIDIA's header, where a program is compiled as its users do it, else our words for it. */
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
#ifdef CLIENT_OF_NVIDIA /* nccl_device.h, which has these, is C++ */
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void* requirements, void* out);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** out);
#endif

enum { client_ids = 8, client_ranks_max = 16, client_notes = 64 };

/* Shared by the processes of a case, zero at first. */
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

/* Runs the body in `size` processes; where one fails, this one ends with a message. `environment`:
 * NAME=VALUE strings up to a NULL, or NULL. */
void client_run(const char* name, int size, const char* const* environment, client_body body);

/* The same id in all processes, made by rank 0. */
ncclUniqueId client_id(struct client* me, int which);
ncclComm_t client_join(struct client* me);
/* From here on NCCL logs to a file, at INFO, which client_take_log reads. It goes when its case is
 * over. */
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
