#include "transport/ucs.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>

#include "settings/settings.hpp"

namespace pith {
namespace {

// While it is loaded, UCX 1.13 patches mmap, munmap and related functions, to track registered
// memory that its user may free. UCX reads only the environment at that time, so a variable is set,
// once, at the first use of UCX.
class NoHooks {
 public:
  explicit NoHooks(UcsHooks hooks) {
    // If UCX was loaded before, it stays as it is.
    void* loaded = dlopen("libucs.so.0", RTLD_NOLOAD | RTLD_LAZY);
    if (loaded) dlclose(loaded);
    ours_ = hooks == UcsHooks::none && !loaded && !in_environment(variable);
    if (ours_) setenv(variable, "n", 1);
  }
  ~NoHooks() {
    if (ours_) unsetenv(variable);
  }
  NoHooks(const NoHooks&) = delete;
  NoHooks& operator=(const NoHooks&) = delete;

 private:
  static constexpr const char* variable = "UCX_MEM_EVENTS";
  bool ours_ = false;
};

// UCX must not catch the signals of the user's program, nor write to its standard output that a
// peer has gone: Pith reports that itself.
void calm_down(void* ucs) {
  using DisableSignals = void (*)();
  using SetOption = signed char (*)(const char*, const char*);
  const auto disable_signals =
      reinterpret_cast<DisableSignals>(dlsym(ucs, "ucs_debug_disable_signals"));
  const auto set_option = reinterpret_cast<SetOption>(dlsym(ucs, "ucs_global_opts_set_value"));
  if (disable_signals && !in_environment("UCX_HANDLE_ERRORS")) disable_signals();
  if (set_option && !in_environment("UCX_LOG_LEVEL")) set_option("LOG_LEVEL", "fatal");
}

}  // namespace

void* load_ucs(UcsHooks hooks, Error& why_not) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const NoHooks no_hooks(hooks);
  void* ucs = dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!ucs) {
    why_not = Error(Code::system, fmt::format("UCX cannot be loaded: {}", dlerror()));
    return nullptr;
  }
  calm_down(ucs);
  return ucs;
}

}  // namespace pith
