/* What depends on CUDA without moving data on a device: on the stub driver, given as the argument.
 */
#include <string.h>

#include "driver.h"

static struct {
  int (*init)(unsigned);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  int (*get_current)(void**);
  int (*attribute)(void*, int, unsigned long long);
  int (*synchronize)(void);
  void (*reset)(void);
  void (*counters)(uint64_t*);
} cuda;

static void start_driver(struct client* me) {
  *(void**)&cuda.init = driver_symbol(me, "cuInit");
  *(void**)&cuda.retain = driver_symbol(me, "cuDevicePrimaryCtxRetain");
  *(void**)&cuda.set_current = driver_symbol(me, "cuCtxSetCurrent");
  *(void**)&cuda.get_current = driver_symbol(me, "cuCtxGetCurrent");
  *(void**)&cuda.attribute = driver_symbol(me, "cuPointerGetAttribute");
  *(void**)&cuda.synchronize = driver_symbol(me, "cuCtxSynchronize");
  *(void**)&cuda.reset = driver_symbol(me, "pithStubReset");
  *(void**)&cuda.counters = driver_symbol(me, "pithStubCounters");
  CHECK(cuda.init(0) == 0);
}

static int is_on_device(const void* memory) {
  unsigned type = 0;
  const int memory_type = 2, device = 2;
  return cuda.attribute(&type, memory_type, (uintptr_t)memory) == 0 && type == device;
}

/* A thread without a context gets memory of CUDA's default device, and stays without one. */
static void memory(struct client* me) {
  void *host = NULL, *device = NULL, *context = NULL;
  OK(ncclMemAlloc(&host, 100)); /* a process that does not use CUDA */
  memset(host, 1, 100);
  start_driver(me);
  OK(ncclMemAlloc(&device, 100));
  CHECK(is_on_device(device) && !is_on_device(host));
  CHECK(cuda.get_current(&context) == 0 && context == NULL);
  OK(ncclMemFree(device));
  OK(ncclMemFree(host));
}

static void devices(struct client* me) {
  ncclComm_t comm = NULL, child = NULL, all[2];
  void* context = NULL;
  int device = -1;
  start_driver(me);
  CHECK(cuda.retain(&context, 1) == 0 && cuda.set_current(context) == 0);
  OK(ncclCommInitRank(&comm, 1, client_id(me, 0), 0));
  OK(ncclCommCuDevice(comm, &device));
  CHECK(device == 1);
  OK(ncclCommSplit(comm, 0, 0, &child, NULL));
  OK(ncclCommCuDevice(child, &device));
  CHECK(device == 1);
  OK(ncclCommInitAll(all, 2, NULL));
  for (int r = 0; r < 2; ++r) {
    OK(ncclCommCuDevice(all[r], &device));
    CHECK(device == r);
    OK(ncclCommDestroy(all[r]));
  }
  OK(ncclCommDestroy(child));
  OK(ncclCommDestroy(comm));
}

/* Each rank of InitAll is ready for calls on its device. Access to the other device, which a thread
 * beside the call would open, is not wanted. */
static void first_calls(struct client* me) {
  enum { n = 1 << 18, most_counters = 64 };
  ncclComm_t all[2];
  void *contexts[2], *memory[2];
  uint64_t counters[most_counters] = {0}; /* the first one: allocations and loads */
  start_driver(me);
  for (int r = 0; r < 2; ++r) {
    CHECK(cuda.retain(&contexts[r], r) == 0 && cuda.set_current(contexts[r]) == 0);
    OK(ncclMemAlloc(&memory[r], n * sizeof(uint32_t)));
    for (int i = 0; i < n; ++i) ((uint32_t*)memory[r])[i] = (uint32_t)(i + r);
  }
  CHECK(cuda.set_current(contexts[0]) == 0);
  OK(ncclCommInitAll(all, 2, NULL));
  cuda.reset();
  OK(ncclGroupStart());
  for (int r = 0; r < 2; ++r) {
    OK(ncclAllReduce(memory[r], memory[r], n, ncclUint32, ncclSum, all[r], NULL));
  }
  OK(ncclGroupEnd());
  for (int r = 0; r < 2; ++r) {
    CHECK(cuda.set_current(contexts[r]) == 0 && cuda.synchronize() == 0);
    for (uint32_t i = 0; i < n; ++i) CHECK(((uint32_t*)memory[r])[i] == 2 * i + 1);
  }
  cuda.counters(counters);
  CHECK(counters[0] == 0);
  for (int r = 0; r < 2; ++r) {
    OK(ncclMemFree(memory[r]));
    OK(ncclCommDestroy(all[r]));
  }
}

/* What is refused is so before any vote, on stream 0 too. */
static void no_vote(struct client* me) {
  enum { n = 4096 };
  static float host[n];
  void* memory = NULL;
  start_driver(me);
  ncclComm_t comm = client_join(me);
  if (me->rank == 0) {
    OK(ncclMemAlloc(&memory, sizeof host));
    FAILS(ncclInvalidArgument, ncclAllReduce(host, memory, n, ncclFloat32, ncclSum, comm, NULL));
    OK(ncclMemFree(memory));
  }
  OK(ncclAllReduce(host, host, n, ncclFloat32, ncclSum, comm, NULL));
  OK(ncclCommDestroy(comm));
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  driver_path = arguments[1];
  client_run("memory", 1, NULL, memory);
  client_run("devices", 1, NULL, devices);
  const char* apart[] = {"PITH_CUDA_IPC=0", NULL};
  client_run("first calls", 1, apart, first_calls);
  const char* compressed[] = {"PITH_COMPRESS=topk:density=0.25,bypass=never,min=8K", NULL};
  client_run("no vote", 2, compressed, no_vote);
  return 0;
}
