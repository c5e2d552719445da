#include "transport/ucx/ucx_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "settings/settings.hpp"

namespace pith {
namespace {

class Loader {
 public:
  explicit Loader(Error& why_not) : why_not_(why_not) {}

  // UCX's own dependencies are loaded with it; its modules find them by name.
  void* open(const char* name) {
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library && !why_not_) {
      why_not_ = Error(Code::system, fmt::format("UCX cannot be loaded: {}", dlerror()));
    }
    return library;
  }
  template <class Function>
  void find(void* library, Function& function, const char* name) {
    if (why_not_) return;
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (!function) {
      why_not_ = Error(Code::system, fmt::format("UCX has no function {}", name));
    }
  }

 private:
  Error& why_not_;
};

void find_worker_functions(UcxLibrary& ucx, Loader& loader, void* ucp) {
  loader.find(ucp, ucx.worker_create, "ucp_worker_create");
  loader.find(ucp, ucx.worker_destroy, "ucp_worker_destroy");
  loader.find(ucp, ucx.worker_query, "ucp_worker_query");
  loader.find(ucp, ucx.worker_release_address, "ucp_worker_release_address");
  loader.find(ucp, ucx.worker_progress, "ucp_worker_progress");
  loader.find(ucp, ucx.worker_get_efd, "ucp_worker_get_efd");
  loader.find(ucp, ucx.worker_arm, "ucp_worker_arm");
  loader.find(ucp, ucx.worker_set_am_recv_handler, "ucp_worker_set_am_recv_handler");
  loader.find(ucp, ucx.ep_create, "ucp_ep_create");
  loader.find(ucp, ucx.ep_close_nbx, "ucp_ep_close_nbx");
  loader.find(ucp, ucx.ep_flush_nbx, "ucp_ep_flush_nbx");
  loader.find(ucp, ucx.am_send_nbx, "ucp_am_send_nbx");
  loader.find(ucp, ucx.am_recv_data_nbx, "ucp_am_recv_data_nbx");
  loader.find(ucp, ucx.am_data_release, "ucp_am_data_release");
  loader.find(ucp, ucx.request_check_status, "ucp_request_check_status");
  loader.find(ucp, ucx.request_free, "ucp_request_free");
}

// UCX must not catch the signals of the user's program, nor write to its standard output that a
// peer has gone: Pith reports that itself.
void calm_down(Loader& loader, void* ucs) {
  void (*disable_signals)() = nullptr;
  ucs_status_t (*set_option)(const char*, const char*) = nullptr;
  loader.find(ucs, disable_signals, "ucs_debug_disable_signals");
  loader.find(ucs, set_option, "ucs_global_opts_set_value");
  if (disable_signals && !in_environment("UCX_HANDLE_ERRORS")) disable_signals();
  if (set_option && !in_environment("UCX_LOG_LEVEL")) set_option("LOG_LEVEL", "fatal");
}

// While it is loaded, UCX 1.13 patches mmap, munmap and related functions, to track registered
// memory that its user may free. Pith frees nothing that UCX still has, so that is not needed. UCX
// reads only the environment at that time, so a variable is set, once, at the first use of UCX.
class NoHooks {
 public:
  NoHooks() {
    // If UCX was loaded before, it stays as it is.
    void* loaded = dlopen("libucs.so.0", RTLD_NOLOAD | RTLD_LAZY);
    if (loaded) dlclose(loaded);
    ours_ = !loaded && !in_environment(variable);
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

UcxLibrary load() {
  UcxLibrary ucx;
  Loader loader(ucx.why_not);
  const NoHooks no_hooks;
  void* ucs = loader.open("libucs.so.0");
  void* ucp = ucs ? loader.open("libucp.so.0") : nullptr;
  if (!ucp) return ucx;
  calm_down(loader, ucs);
  loader.find(ucs, ucx.status_string, "ucs_status_string");
  loader.find(ucp, ucx.get_version, "ucp_get_version");
  loader.find(ucp, ucx.get_version_string, "ucp_get_version_string");
  loader.find(ucp, ucx.config_read, "ucp_config_read");
  loader.find(ucp, ucx.config_modify, "ucp_config_modify");
  loader.find(ucp, ucx.config_release, "ucp_config_release");
  loader.find(ucp, ucx.init_version, "ucp_init_version");
  loader.find(ucp, ucx.cleanup, "ucp_cleanup");
  loader.find(ucp, ucx.context_print_info, "ucp_context_print_info");
  loader.find(ucp, ucx.context_query, "ucp_context_query");
  loader.find(ucp, ucx.mem_map, "ucp_mem_map");
  loader.find(ucp, ucx.mem_unmap, "ucp_mem_unmap");
  find_worker_functions(ucx, loader, ucp);
  if (ucx.why_not) return ucx;
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucx.get_version(&major, &minor, &release);
  if (UCP_VERSION(major, minor) < UCP_VERSION(UCP_API_MAJOR, UCP_API_MINOR)) {
    ucx.why_not = Error(Code::system, fmt::format("UCX {}.{} is here, this build needs {}.{}",
                                                  major, minor, UCP_API_MAJOR, UCP_API_MINOR));
  }
  return ucx;
}

}  // namespace

const UcxLibrary& ucx_library() {
  static const UcxLibrary library = load();
  return library;
}

}  // namespace pith
