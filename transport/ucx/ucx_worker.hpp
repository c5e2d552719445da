// One UCX context and worker, with Pith's settings.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/ucx/ucx_regions.hpp"

namespace pith {

class UcxWorker {
 public:
  // Where `host` is a loopback address, only the device lo is used, unless UCX_NET_DEVICES says
  // otherwise.
  static Expected<std::unique_ptr<UcxWorker>> create(std::string_view host);
  // What is in flight ends with errors, through its callbacks.
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  const UcxLibrary& ucx() const { return ucx_; }
  // "transport/device" each.
  const std::vector<std::string>& devices() const { return devices_; }
  bool rdma() const;
  // Whether hardware can access memory of CUDA devices, as far as UCX and the host's drivers tell.
  bool reaches_devices() const;

  Expected<std::string> address() const;
  void on_message(ucp_am_recv_callback_t handler, void* arg);
  Expected<ucp_ep_h> connect(std::string_view address, ucp_err_handler_cb_t on_error, void* arg);
  // Does not wait for the peer. What is in flight ends with errors, also before this returns.
  void close(ucp_ep_h endpoint);

  bool progress() { return ucx_.worker_progress(worker_) != 0; }
  int descriptor() const { return descriptor_; }
  // False where there is work already.
  bool arm() const { return ucx_.worker_arm(worker_) == UCS_OK; }

  // Null: done. Else `done` is called with `arg`, unless the result is an error (UCS_PTR_IS_ERR).
  enum class Way { eager, rendezvous };
  ucs_status_ptr_t send(ucp_ep_h endpoint, std::span<const std::byte> head,
                        std::span<const std::byte> data, Way way, ucp_send_nbx_callback_t done,
                        void* arg) const;
  // By rendezvous, from device memory as of Compute::network_memory().
  ucs_status_ptr_t send_direct(ucp_ep_h endpoint, std::span<const std::byte> head,
                               std::span<const std::byte> data, std::uint64_t memory,
                               ucp_send_nbx_callback_t done, void* arg) const;
  ucs_status_ptr_t flush(ucp_ep_h endpoint, ucp_send_nbx_callback_t done, void* arg) const;
  ucs_status_ptr_t fetch(void* message, std::byte* into, std::size_t bytes,
                         ucp_am_recv_data_nbx_callback_t done, void* arg) const;
  // The same, into device memory.
  ucs_status_ptr_t fetch_direct(void* message, std::span<std::byte> into, std::uint64_t memory,
                                ucp_am_recv_data_nbx_callback_t done, void* arg) const;
  void release(void* message) const { ucx_.am_data_release(worker_, message); }

 private:
  explicit UcxWorker(const UcxLibrary& ucx) : ucx_(ucx) {}
  Error find_devices(bool loopback);
  Error open_context(bool loopback, bool sockets);
  Error make_worker();
  void prefer(ucp_config_t* config, const char* name, const char* value) const;
  Error read_devices();
  bool knows_devices() const;
  void name_region(ucp_request_param_t& param, std::span<const std::byte> data,
                   std::uint64_t memory) const;
  void reap_closing();

  const UcxLibrary& ucx_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::vector<std::string> devices_;
  std::vector<void*> closing_;
  std::unique_ptr<UcxRegions> regions_;
};

}  // namespace pith
