#include "transport/ucx/ucx_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "transport/ucs.hpp"

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

UcxLibrary load() {
  UcxLibrary ucx;
  Loader loader(ucx.why_not);
  // Pith frees nothing that UCX still has, so UCX need not watch memory.
  void* ucs = load_ucs(UcsHooks::none, ucx.why_not);
  void* ucp = ucs ? loader.open("libucp.so.0") : nullptr;
  if (!ucp) return ucx;
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
