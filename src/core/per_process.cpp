#include "core/per_process.hpp"

#include <pthread.h>

namespace pith {

namespace {

// Before any code of the library runs, as code that is inline reads the generation alone.
[[maybe_unused]] const int registered = pthread_atfork(
    nullptr, nullptr, [] { detail::fork_generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

namespace detail {
std::atomic<unsigned> fork_generation{1};
}  // namespace detail

}  // namespace pith
