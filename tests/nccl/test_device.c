/* What depends on CUDA without moving data on a device: on the stub driver, given as the argument.
 */
#include <string.h>
#include <unistd.h>

#include "driver.h"

static int is_on_device(const void* memory) {
  unsigned type = 0;
  const int memory_type = 2, device = 2;
  return cuda.attribute(&type, memory_type, (uintptr_t)memory) == 0 && type == device;
}

static int exports_descriptor(const void* memory) {
  uint64_t types = 0;
  const int handle_types = 14, descriptor = 1;
  return cuda.attribute(&types, handle_types, (uintptr_t)memory) == 0 && types == descriptor;
}

/* A thread without a context gets memory of CUDA's default device, and stays without one. */
static void memory(struct client* me) {
  void *host = NULL, *device = NULL, *context = NULL;
  OK(ncclMemAlloc(&host, 100)); /* a process that does not use CUDA */
  memset(host, 1, 100);
  start_driver(me);
  OK(ncclMemAlloc(&device, 100));
  CHECK(is_on_device(device) && !is_on_device(host));
  /* Whole pages: a driver puts what is less where there is room, in the middle of one. */
  unsigned long long base = 0;
  const size_t page = (size_t)2 << 20;
  size_t bytes = 0;
  CHECK(cuda.range(&base, &bytes, (uintptr_t)device) == 0);
  CHECK(base == (uintptr_t)device && bytes == page);
  CHECK(exports_descriptor(device) == (getenv("PITH_CUDA_STUB_MAPS") == NULL));
  CHECK(cuda.get_current(&context) == 0 && context == NULL);
  OK(ncclMemFree(device));
  OK(ncclMemFree(host));
  for (int i = 0; i < 10; ++i) {
    OK(ncclMemAlloc(&device, 100));
    OK(ncclMemFree(device));
  }
  /* The device's context is held once, and again where somebody has reset it. */
  CHECK(cuda.release(0) == 0 && cuda.release(0) != 0);
  OK(ncclMemAlloc(&device, 100));
  CHECK(cuda.release(0) == 0);
  FAILS(ncclInvalidArgument, ncclMemFree((char*)device + 512));
  OK(ncclMemFree(device));
  CHECK(!is_on_device(device));
}

/* Frees nothing but what it is given, while a stream of the same context waits for this thread. */
static void freed_beside_work(struct client* me) {
  void* device = NULL;
  use_device(me);
  uint64_t* const raised = new_word(me);
  OK(ncclMemAlloc(&device, 100));
  wait_for_word(me, NULL, raised, 1);
  OK(ncclMemFree(device));
  set_word(raised, 1);
  CHECK(cuda.synchronize(NULL) == 0);
}

/* Each process works on the other's, as soon as that is mapped: not one copy by way of the host. */
static void mapped_by_others(struct client* me) {
  enum { n = 5000, most_calls = 3000, most_counters = 64, host_copies = 10 };
  uint32_t *send = NULL, *recv = NULL;
  use_device(me);
  ncclComm_t comm = client_join(me);
  OK(ncclMemAlloc((void**)&send, n * sizeof(uint32_t)));
  OK(ncclMemAlloc((void**)&recv, n * sizeof(uint32_t)));
  uint64_t copied = 1; /* by any process */
  for (uint32_t call = 0; call < most_calls && copied > 0; ++call) {
    uint64_t counters[most_counters] = {0};
    for (uint32_t i = 0; i < n; ++i) send[i] = call * (i + 1) + (uint32_t)me->rank;
    cuda.reset();
    OK(ncclAllReduce(send, recv, n, ncclUint32, ncclSum, comm, NULL));
    CHECK(cuda.synchronize(NULL) == 0);
    for (uint32_t i = 0; i < n; ++i) CHECK(recv[i] == 2 * call * (i + 1) + 1);
    cuda.counters(counters);
    OK(ncclAllReduce(&counters[host_copies], &copied, 1, ncclUint64, ncclSum, comm, NULL));
  }
  CHECK(copied == 0);
  OK(ncclMemFree(send));
  OK(ncclMemFree(recv));
  OK(ncclCommDestroy(comm));
}

/* The first call of a process that has a driver and has not used it. */
static void first_memory(struct client* me) {
  void *device = NULL, *context = NULL;
  load_driver(me);
  OK(ncclMemAlloc(&device, 100));
  CHECK(is_on_device(device));
  CHECK(cuda.get_current(&context) == 0 && context == NULL);
  OK(ncclMemFree(device));
}

/* Also where a driver is, but no device. */
static void no_device(struct client* me) {
  void* host = NULL;
  load_driver(me);
  OK(ncclMemAlloc(&host, 100));
  memset(host, 1, 100);
  CHECK(!is_on_device(host));
  OK(ncclMemFree(host));
}

/* CUDA comes up when the communicator is there and has been used: stream NULL is the device's for
 * device memory all the same, so the sum is one of what is written when the stream gets there. */
static void late_driver(struct client* me) {
  enum { n = 1000, legacy = 1 };
  ncclComm_t comm = client_join(me);
  float one = 1, sum = 0;
  OK(ncclAllReduce(&one, &sum, 1, ncclFloat32, ncclSum, comm, NULL));
  CHECK(sum == (float)me->size);
  unsigned long long memory[2];
  use_device(me);
  uint64_t* const flag = new_word(me);
  for (int i = 0; i < 2; ++i) {
    CHECK(cuda.alloc(&memory[i], n * sizeof(float)) == 0);
    for (int j = 0; j < n; ++j) ((float*)memory[i])[j] = i == 0 ? -1.0f : (float)j;
  }
  float* const sums = (float*)memory[0];
  wait_for_word(me, NULL, flag, 1);
  CHECK(cuda.copy(memory[0], memory[1], n * sizeof(float), NULL) == 0);
  OK(ncclAllReduce(sums, sums, n, ncclFloat32, ncclSum, comm, NULL));
  set_word(flag, 1);
  CHECK(cuda.synchronize((void*)(uintptr_t)legacy) == 0);
  for (int j = 0; j < n; ++j) CHECK(sums[j] == (float)(j * me->size));
  for (int i = 0; i < 2; ++i) CHECK(cuda.free(memory[i]) == 0);
  OK(ncclCommDestroy(comm));
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
  /* A child's device is its parent's, whatever the thread that makes it works on. */
  for (int other = 0; other < 2; ++other) {
    if (other) CHECK(cuda.retain(&context, 0) == 0);
    CHECK(cuda.set_current(other ? context : NULL) == 0);
    OK(ncclCommSplit(comm, 0, 0, &child, NULL));
    OK(ncclCommCuDevice(child, &device));
    CHECK(device == 1);
    OK(ncclCommDestroy(child));
  }
  OK(ncclCommInitAll(all, 2, NULL));
  for (int r = 0; r < 2; ++r) {
    OK(ncclCommCuDevice(all[r], &device));
    CHECK(device == r);
    OK(ncclCommDestroy(all[r]));
  }
  const int apart[2] = {0, 99};
  FAILS(ncclInvalidArgument, ncclCommInitAll(all, 2, apart));
  ncclComm_t more[3];
  FAILS(ncclInvalidArgument, ncclCommInitAll(more, 3, NULL));
  const int last[1] = {1};
  OK(ncclCommInitAll(all, 1, last));
  OK(ncclCommDestroy(all[0]));
  /* None of this has changed the caller's device. */
  void* current = NULL;
  CHECK(cuda.get_current(&current) == 0 && current == context);
  OK(ncclCommDestroy(comm));
}

/* Each rank of InitAll is ready for calls on its device, and so are their children, which XLA makes
 * on threads without a context. Access to the other device, which a thread beside the call would
 * open, is not wanted. */
static void first_calls(struct client* me) {
  enum { n = 1 << 18, most_counters = 64 };
  ncclComm_t comms[2][2]; /* parents, children */
  void *contexts[2], *memory[2];
  start_driver(me);
  for (int r = 0; r < 2; ++r) {
    CHECK(cuda.retain(&contexts[r], r) == 0 && cuda.set_current(contexts[r]) == 0);
    OK(ncclMemAlloc(&memory[r], n * sizeof(uint32_t)));
  }
  CHECK(cuda.set_current(contexts[0]) == 0);
  OK(ncclCommInitAll(comms[0], 2, NULL));
  CHECK(cuda.set_current(NULL) == 0);
  OK(ncclGroupStart());
  for (int r = 0; r < 2; ++r) OK(ncclCommSplit(comms[0][r], 0, r, &comms[1][r], NULL));
  OK(ncclGroupEnd());
  /* Empty tensors do not tell of a device: the last one that was set is not every rank's. */
  OK(ncclGroupStart());
  for (int r = 0; r < 2; ++r) {
    CHECK(cuda.set_current(contexts[r]) == 0);
    OK(ncclAllReduce(NULL, NULL, 0, ncclUint32, ncclSum, comms[0][r], NULL));
  }
  OK(ncclGroupEnd());
  for (int which = 0; which < 2; ++which) {
    uint64_t counters[most_counters] = {0}; /* the first one: allocations and loads */
    for (uint32_t i = 0; i < 2 * n; ++i) ((uint32_t*)memory[i / n])[i % n] = i % n + i / n;
    cuda.reset();
    OK(ncclGroupStart());
    for (int r = 0; r < 2; ++r) {
      OK(ncclAllReduce(memory[r], memory[r], n, ncclUint32, ncclSum, comms[which][r], NULL));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < 2; ++r) {
      CHECK(cuda.set_current(contexts[r]) == 0 && cuda.synchronize_all() == 0);
      for (uint32_t i = 0; i < n; ++i) CHECK(((uint32_t*)memory[r])[i] == 2 * i + 1);
    }
    cuda.counters(counters);
    CHECK(counters[0] == 0);
  }
  for (int r = 0; r < 2; ++r) {
    OK(ncclMemFree(memory[r]));
    for (int which = 0; which < 2; ++which) OK(ncclCommDestroy(comms[which][r]));
  }
}

/* What a call does behind the stream is done at the end of the process, which is no death. */
static void ends_behind_stream(struct client* me) {
  use_device(me);
  ncclComm_t comm = client_join(me);
  float* memory = NULL;
  OK(ncclMemAlloc((void**)&memory, 4096));
  for (int call = 0; call < 3; ++call) {
    OK(ncclAllReduce(memory, memory, 1000, ncclFloat32, ncclSum, comm, NULL));
    CHECK(cuda.synchronize(NULL) == 0);
  }
  if (me->rank == 0) exit(0);
  for (int look = 0; look < 20; ++look) {
    ncclResult_t state = ncclInternalError;
    OK(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclSuccess);
    usleep(10000);
  }
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  driver_path = arguments[1];
  client_run("memory", 1, NULL, memory);
  client_run("memory at the first call", 1, NULL, first_memory);
  const char* unmapped[] = {"PITH_CUDA_STUB_MAPS=0", NULL};
  client_run("memory that cannot be mapped by hand", 1, unmapped, memory);
  client_run("memory freed beside work", 1, NULL, freed_beside_work);
  const char* by_views[] = {"PITH_ALGO=allreduce:two_shot", NULL};
  client_run("memory that others map", 2, by_views, mapped_by_others);
  const char* none[] = {"PITH_CUDA_STUB_DEVICES=0", NULL};
  client_run("no device", 1, none, no_device);
  client_run("driver after the communicator", 2, NULL, late_driver);
  client_run("devices", 1, NULL, devices);
  for (int turn = 0; turn < 10; ++turn) {
    client_run("end behind a stream", 2, NULL, ends_behind_stream);
  }
  const char* apart[] = {"PITH_CUDA_IPC=0", NULL};
  client_run("first calls", 1, apart, first_calls);
  return 0;
}
