/* The stub driver, whose path is a client's argument: its functions by name, and what clients on
 * devices do with them. The host may look into its device memory. */
#pragma once

#include <dlfcn.h>
#include <string.h>

#include "client.h"

static const char* driver_path;

static inline void* driver_symbol(struct client* me, const char* name) {
  void* const library = dlopen(driver_path, RTLD_NOW | RTLD_GLOBAL);
  CHECK(library != NULL);
  void* const found = dlsym(library, name);
  CHECK(found != NULL);
  return found;
}

static struct {
  int (*init)(unsigned);
  int (*retain)(void**, int);
  int (*release)(int);
  int (*set_current)(void*);
  int (*get_current)(void**);
  int (*attribute)(void*, int, unsigned long long);
  int (*create_stream)(void**, unsigned, int);
  int (*destroy_stream)(void*);
  int (*synchronize)(void*);
  int (*synchronize_all)(void);
  int (*wait)(void*, unsigned long long, uint64_t, unsigned);
  int (*host_alloc)(void**, size_t, unsigned);
  int (*alloc)(unsigned long long*, size_t);
  int (*free)(unsigned long long);
  int (*range)(unsigned long long*, size_t*, unsigned long long);
  int (*memory_left)(size_t*, size_t*);
  int (*copy)(unsigned long long, unsigned long long, size_t, void*);
  int (*begin_capture)(void*, int);
  int (*end_capture)(void*, void**);
  int (*instantiate)(void**, void*, unsigned long long);
  int (*launch)(void*, void*);
  void (*reset)(void);
  void (*counters)(uint64_t*);
} cuda;

static inline void load_driver(struct client* me) {
  const struct {
    void* function;
    const char* name;
  } all[] = {{&cuda.init, "cuInit"},
             {&cuda.retain, "cuDevicePrimaryCtxRetain"},
             {&cuda.release, "cuDevicePrimaryCtxRelease_v2"},
             {&cuda.set_current, "cuCtxSetCurrent"},
             {&cuda.get_current, "cuCtxGetCurrent"},
             {&cuda.attribute, "cuPointerGetAttribute"},
             {&cuda.create_stream, "cuStreamCreateWithPriority"},
             {&cuda.destroy_stream, "cuStreamDestroy_v2"},
             {&cuda.synchronize, "cuStreamSynchronize"},
             {&cuda.synchronize_all, "cuCtxSynchronize"},
             {&cuda.wait, "cuStreamWaitValue64_v2"},
             {&cuda.host_alloc, "cuMemHostAlloc"},
             {&cuda.alloc, "cuMemAlloc_v2"},
             {&cuda.free, "cuMemFree_v2"},
             {&cuda.range, "cuMemGetAddressRange_v2"},
             {&cuda.memory_left, "cuMemGetInfo_v2"},
             {&cuda.copy, "cuMemcpyAsync"},
             {&cuda.begin_capture, "cuStreamBeginCapture_v2"},
             {&cuda.end_capture, "cuStreamEndCapture"},
             {&cuda.instantiate, "cuGraphInstantiateWithFlags"},
             {&cuda.launch, "cuGraphLaunch"},
             {&cuda.reset, "pithStubReset"},
             {&cuda.counters, "pithStubCounters"}};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    *(void**)all[i].function = driver_symbol(me, all[i].name);
  }
}

static inline void start_driver(struct client* me) {
  load_driver(me);
  CHECK(cuda.init(0) == 0);
}

/* The context of device 0 becomes this thread's. */
static inline void use_device(struct client* me) {
  void* context = NULL;
  start_driver(me);
  CHECK(cuda.retain(&context, 0) == 0 && cuda.set_current(context) == 0);
}

static inline void* new_stream(struct client* me) {
  const unsigned non_blocking = 1;
  void* stream = NULL;
  CHECK(cuda.create_stream(&stream, non_blocking, 0) == 0);
  return stream;
}

/* A word in pinned memory, zero: streams wait for it. Inlined, GCC would take what the driver gives
 * for the address of a local. */
static __attribute__((noinline, unused)) uint64_t* new_word(struct client* me) {
  void* word = NULL;
  CHECK(cuda.host_alloc(&word, sizeof(uint64_t), 0) == 0);
  return memset(word, 0, sizeof(uint64_t));
}

static inline void set_word(uint64_t* word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* A stream gets no further until the word has this value. */
static inline void wait_for_word(struct client* me, void* stream, uint64_t* word, uint64_t value) {
  const unsigned at_least = 0;
  CHECK(cuda.wait(stream, (uintptr_t)word, value, at_least) == 0);
}

static inline float* floats_of(struct client* me, size_t count, float value) {
  void* memory = NULL;
  OK(ncclMemAlloc(&memory, count * sizeof(float)));
  for (size_t i = 0; i < count; ++i) ((float*)memory)[i] = value;
  return memory;
}

static inline int zeros_among(const float* vector, size_t count) {
  int zeros = 0;
  for (size_t i = 0; i < count; ++i) zeros += vector[i] == 0;
  return zeros;
}

/* Gradients whose sums are exact, so that they are the same in any order. */
static inline float gradient_of(const struct client* me, int layer, int step, int i) {
  const uint32_t mixed =
      ((uint32_t)i * 2654435761u) ^ (uint32_t)(me->rank * 97 + layer * 31 + step);
  return (float)((mixed * 2246822519u) >> 22) / 1024.0f - 0.5f;
}
