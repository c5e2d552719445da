#include "process.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace pith::python {

namespace {

std::atomic<unsigned> generation{0};
std::atomic<std::uintptr_t> main_thread{0};
std::atomic<bool> ending{
    false};  // the interpreter: only daemon threads are left beside the main one

std::uintptr_t this_thread() { return static_cast<std::uintptr_t>(pthread_self()); }

}  // namespace

void watch_process() {
  // Python's identifiers of threads are those of pthread_self. The module may be loaded by another
  // thread.
  const auto threading = nanobind::module_::import_("threading");
  main_thread = nanobind::cast<std::uintptr_t>(threading.attr("main_thread")().attr("ident"));
  nanobind::module_::import_("atexit").attr("register")(
      nanobind::cpp_function([] { ending.store(true); }));
  pthread_atfork(nullptr, nullptr, [] {
    generation.fetch_add(1, std::memory_order_relaxed);
    main_thread.store(this_thread(), std::memory_order_relaxed);
  });
}

unsigned fork_generation() { return generation.load(std::memory_order_relaxed); }

bool on_main_thread() { return main_thread.load(std::memory_order_relaxed) == this_thread(); }

WithoutGil::~WithoutGil() {
  while (ending.load() && !on_main_thread()) ::pause();
  PyEval_RestoreThread(state_);
}

}  // namespace pith::python
