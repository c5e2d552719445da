// Libraries and launches on the stub: names, checks, stream order, replays.
#include "cuda/kernels/dense.hpp"
#include "tests/cuda_stub/fixture.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

CUfunction function_named(const char* name) {
  CUlibrary library = nullptr;
  OK(cu().library_load(&library, "any image", nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  OK(cu().library_kernel(&kernel, library, name));
  CUfunction function = nullptr;
  OK(cu().kernel_function(&function, kernel));
  OK(cu().function_load(function));
  return function;
}

CUresult launch(CUfunction function, unsigned threads, CUstream stream, ReduceArgs args) {
  void* params[] = {&args};
  return cu().launch_kernel(function, 1, 1, 1, threads, 1, 1, 0, stream, params, nullptr);
}

// Word 0 += word 1.
ReduceArgs add_words(const Words& words) {
  auto* const memory = static_cast<std::byte*>(words.memory);
  return {1, 2, 1, 0, {memory, memory + 8}, {memory}};
}

}  // namespace

TEST_CASE("a library has the kernels that the list names, and no others") {
  const Device device;
  CUlibrary library = nullptr;
  CHECK(cu().library_load(&library, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0) ==
        kErrorInvalidValue);
  OK(cu().library_load(&library, "any image", nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  CHECK(cu().library_kernel(&kernel, library, "pith_reduce_u64_sum") == kSuccess);
  CHECK(cu().library_kernel(&kernel, library, "pith_reduce_u64_difference") == kErrorNotFound);
  CHECK(cu().library_kernel(&kernel, nullptr, "pith_copy") == kErrorInvalidHandle);
}

TEST_CASE("launches run in stream order and are checked as the driver does") {
  const Device device;
  const CUfunction add = function_named("pith_reduce_u64_sum");
  const Stream stream;
  const Words words(3);
  words[0] = 5;
  words[1] = 7;
  CHECK(launch(add, dense_threads / 2, stream, add_words(words)) == kErrorInvalidValue);
  CHECK(launch(nullptr, dense_threads, stream, add_words(words)) == kErrorInvalidHandle);
  OK(launch(add, dense_threads, stream, add_words(words)));
  OK(launch(add, dense_threads, stream, add_words(words)));
  OK(cu().write_value64(stream, words.at(2), 1, 0));
  while (words[2].load(std::memory_order_acquire) != 1) std::this_thread::yield();
  CHECK(words[0] == 19);
  const Device other(1);
  CHECK(launch(add, dense_threads, stream, add_words(words)) == kErrorInvalidHandle);
}

TEST_CASE("a captured launch runs once in each replay") {
  const Device device;
  const CUfunction add = function_named("pith_reduce_u64_sum");
  const Stream stream;
  const Words words(2);
  words[1] = 3;
  CUgraph graph = nullptr;
  OK(cu().capture_begin(stream, kCaptureRelaxed));
  OK(launch(add, dense_threads, stream, add_words(words)));
  OK(cu().capture_end(stream, &graph));
  CHECK(words[0] == 0);
  CUgraphExec exec = nullptr;
  OK(cu().graph_instantiate(&exec, graph, 0));
  for (int replay = 0; replay < 100; ++replay) OK(cu().graph_launch(exec, stream));
  OK(cu().stream_synchronize(stream));
  CHECK(words[0] == 300);
  cu().graph_exec_destroy(exec);
  cu().graph_destroy(graph);
}
