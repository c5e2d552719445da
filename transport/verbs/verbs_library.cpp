#include "transport/verbs/verbs_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

namespace pith {
namespace {

using QueryGid = int (*)(ibv_context*, std::uint32_t, std::uint32_t, ibv_gid_entry*, std::uint32_t,
                         std::size_t);
QueryGid query_gid = nullptr;  // written once, by load()

class Loader {
 public:
  explicit Loader(Error& why_not) : why_not_(why_not) {
    library_ = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library_) {
      why_not_ = Error(Code::system, fmt::format("libibverbs cannot be loaded: {}", dlerror()));
    }
  }
  template <class Function>
  void find_if_there(Function& function, const char* name) {
    if (!why_not_) function = reinterpret_cast<Function>(dlsym(library_, name));
  }
  template <class Function>
  void find(Function& function, const char* name) {
    find_if_there(function, name);
    if (!why_not_ && !function) {
      why_not_ = Error(Code::system, fmt::format("libibverbs has no function {}", name));
    }
  }

 private:
  Error& why_not_;
  void* library_ = nullptr;
};

// The header's inline functions only look into the context, and need no library.
void add_inline_functions(VerbsLibrary& verbs) {
  verbs.query_gid_ex = [](ibv_context* context, std::uint32_t port, std::uint32_t index,
                          ibv_gid_entry* entry) {
    return query_gid(context, port, index, entry, 0, sizeof *entry);
  };
  verbs.post_send = [](ibv_qp* pair, ibv_send_wr* work, ibv_send_wr** bad) {
    return ibv_post_send(pair, work, bad);
  };
  verbs.post_recv = [](ibv_qp* pair, ibv_recv_wr* work, ibv_recv_wr** bad) {
    return ibv_post_recv(pair, work, bad);
  };
  verbs.poll_cq = [](ibv_cq* queue, int entries, ibv_wc* completions) {
    return ibv_poll_cq(queue, entries, completions);
  };
  verbs.req_notify_cq = [](ibv_cq* queue, int solicited_only) {
    return ibv_req_notify_cq(queue, solicited_only);
  };
}

VerbsLibrary load() {
  VerbsLibrary verbs;
  Loader loader(verbs.why_not);
  int (*fork_init)() = nullptr;
  loader.find(fork_init, "ibv_fork_init");
  loader.find(verbs.get_device_list, "ibv_get_device_list");
  loader.find(verbs.free_device_list, "ibv_free_device_list");
  loader.find(verbs.get_device_name, "ibv_get_device_name");
  loader.find(verbs.open_device, "ibv_open_device");
  loader.find(verbs.close_device, "ibv_close_device");
  loader.find(verbs.query_device, "ibv_query_device");
  // The exported function fills the first part of ibv_port_attr, which is all that is read.
  loader.find(verbs.query_port, "ibv_query_port");
  loader.find(query_gid, "_ibv_query_gid_ex");
  loader.find(verbs.alloc_pd, "ibv_alloc_pd");
  loader.find(verbs.dealloc_pd, "ibv_dealloc_pd");
  loader.find(verbs.reg_mr, "ibv_reg_mr");
  loader.find_if_there(verbs.reg_dmabuf_mr, "ibv_reg_dmabuf_mr");
  loader.find(verbs.dereg_mr, "ibv_dereg_mr");
  loader.find(verbs.create_comp_channel, "ibv_create_comp_channel");
  loader.find(verbs.destroy_comp_channel, "ibv_destroy_comp_channel");
  loader.find(verbs.create_cq, "ibv_create_cq");
  loader.find(verbs.destroy_cq, "ibv_destroy_cq");
  loader.find(verbs.get_cq_event, "ibv_get_cq_event");
  loader.find(verbs.ack_cq_events, "ibv_ack_cq_events");
  loader.find(verbs.create_qp, "ibv_create_qp");
  loader.find(verbs.modify_qp, "ibv_modify_qp");
  loader.find(verbs.destroy_qp, "ibv_destroy_qp");
  loader.find(verbs.get_async_event, "ibv_get_async_event");
  loader.find(verbs.ack_async_event, "ibv_ack_async_event");
  loader.find(verbs.event_type_str, "ibv_event_type_str");
  loader.find(verbs.wc_status_str, "ibv_wc_status_str");
  add_inline_functions(verbs);
  // Kernels before 5.12 would give a forking parent other pages than the device has. Two threads
  // must not call it at the same time.
  if (!verbs.why_not) fork_init();
  return verbs;
}

}  // namespace

const VerbsLibrary& verbs_library() {
  static const VerbsLibrary library = load();
  return library;
}

}  // namespace pith
