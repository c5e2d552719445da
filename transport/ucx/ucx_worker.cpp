#include "transport/ucx/ucx_worker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <utility>

#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"
#include "settings/settings.hpp"
#include "settings/settings_origin.hpp"
#include "transport/locked_memory.hpp"
#include "transport/ucx/ucx.hpp"

namespace pith {
namespace {

// A worker over sockets opens some 16 descriptors, and more for the first connections.
constexpr std::size_t worker_descriptors = 32;
constexpr std::uint64_t closing_ns = 1'000'000'000;

// UCX reads sysfs, the environment and its modules while it starts; ranks may be threads.
std::mutex& init_mutex() {
  static std::mutex mutex;
  return mutex;
}

Error ucx_error(const UcxLibrary& ucx, std::string_view what, ucs_status_t status) {
  return {Code::system, fmt::format("UCX: {}: {}", what, ucx.status_string(status))};
}

// With sockets the kernel reports a dead peer at once; with RDMA UCX has to probe.
constexpr const char* rdma_keepalive = "1s";
// A send that UCX does not copy ends when the kernel has taken its last byte. A copied one ends at
// once, but if the socket is full, the rest stays until UCX is driven again.
constexpr const char* sockets_copy_below = "0";

bool is_loopback(std::string_view host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

bool is_rdma(std::string_view device) {
  constexpr std::string_view names[] = {"rc", "ud", "dc"};
  return std::any_of(std::begin(names), std::end(names), [&](std::string_view name) {
    return device.starts_with(name) && device.size() > 2 && device[2] == '_';
  });
}

ucp_request_param_t send_param(ucp_send_nbx_callback_t done, void* arg) {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.cb.send = done;
  param.user_data = arg;
  return param;
}

ucp_request_param_t fetch_param(ucp_am_recv_data_nbx_callback_t done, void* arg) {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv_am = done;
  param.user_data = arg;
  return param;
}

}  // namespace

Expected<std::unique_ptr<UcxWorker>> UcxWorker::create(std::string_view host) {
  const UcxLibrary& ucx = ucx_library();
  if (ucx.why_not) return ucx.why_not;
  std::unique_ptr<UcxWorker> worker(new UcxWorker(ucx));
  const std::lock_guard lock(init_mutex());
  // UCX ends the process where it runs out of descriptors on the way.
  if (!make_descriptor_room(worker_descriptors)) {
    return system_error(fmt::format("UCX: {} descriptors for a worker", worker_descriptors),
                        EMFILE);
  }
  if (Error error = worker->find_devices(is_loopback(host))) return error;
  if (Error error = worker->make_worker()) return error;
  return worker;
}

// The user's own UCX_... settings take precedence.
void UcxWorker::prefer(ucp_config_t* config, const char* name, const char* value) const {
  if (!in_environment(fmt::format("UCX_{}", name))) ucx_.config_modify(config, name, value);
}

// A host may have RDMA hardware that UCX cannot use.
Error UcxWorker::find_devices(bool loopback) {
  const bool hardware = host_has_rdma();
  if (Error error = open_context(loopback, !hardware)) return error;
  if (!hardware || rdma()) return {};
  ucx_.cleanup(std::exchange(context_, nullptr));
  return open_context(loopback, true);
}

Error UcxWorker::open_context(bool loopback, bool sockets) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucx_.config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return ucx_error(ucx_, "the UCX_... settings", status);
  if (sockets) {
    prefer(config, "ZCOPY_THRESH", sockets_copy_below);
  } else {
    prefer(config, "KEEPALIVE_INTERVAL", rdma_keepalive);
  }
  for (const auto& [name, value] : defaults_of_library("UCX_")) {
    prefer(config, name.c_str(), value.c_str());
  }
  if (loopback) prefer(config, "NET_DEVICES", "lo");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  status = ucx_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  ucx_.config_release(config);
  if (status != UCS_OK) {
    context_ = nullptr;
    return ucx_error(ucx_, "no transport or device fits UCX_TLS and UCX_NET_DEVICES", status);
  }
  return read_devices();
}

Error UcxWorker::make_worker() {
  // UCX 1.13 never ends where it can lock too little (soft-RoCE: 48 MiB), which depends on the
  // transports that it chooses.
  constexpr std::size_t locked = std::size_t{64} << 20;
  if (rdma() && !in_environment("UCX_TLS")) {
    if (Error error = try_to_lock(locked)) return error;
  }
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  // Requests of peers that died are never completed.
  worker.flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK;
  ucs_status_t status = ucx_.worker_create(context_, &worker, &worker_);
  if (status != UCS_OK) {
    worker_ = nullptr;
    return ucx_error(ucx_, "make a worker", status);
  }
  status = ucx_.worker_get_efd(worker_, &descriptor_);
  if (status != UCS_OK) return ucx_error(ucx_, "a descriptor to sleep on", status);
  // Where UCX does not know devices, as in tests, their memory is the host's.
  regions_ = std::make_unique<UcxRegions>(
      ucx_, context_, knows_devices() ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST);
  return {};
}

bool UcxWorker::knows_devices() const {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  return ucx_.context_query(context_, &attributes) == UCS_OK &&
         (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
}

// Hardware needs a kernel module that pins a device's memory, or dma-buf, as of UCX 1.14.
bool UcxWorker::reaches_devices() const {
  if (!rdma() || !knows_devices()) return false;
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucx_.get_version(&major, &minor, &release);
  if (UCP_VERSION(major, minor) >= UCP_VERSION(1, 14)) return true;
  std::error_code none;
  return std::filesystem::exists("/sys/module/nvidia_peermem", none) ||
         std::filesystem::exists("/sys/module/nv_peer_mem", none);
}

// UCX 1.13 lists what it found only as text: "#  resource 0 : md 0 dev 0 flags -- tcp/eth0".
Error UcxWorker::read_devices() {
  devices_.clear();
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* memory = open_memstream(&text, &size);
  if (!memory) return {Code::system, "no memory to list UCX's devices"};
  ucx_.context_print_info(context_, memory);
  std::fclose(memory);
  std::string_view rest(text, size);
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::size_t last = line.find_last_of(' ');
    const bool resource = line.find(" resource ") != std::string_view::npos;
    if (resource && last != std::string_view::npos) devices_.emplace_back(line.substr(last + 1));
  }
  std::free(text);
  return {};
}

bool UcxWorker::rdma() const { return std::any_of(devices_.begin(), devices_.end(), is_rdma); }

UcxWorker::~UcxWorker() {
  const std::uint64_t deadline = monotonic_ns() + closing_ns;
  for (reap_closing(); !closing_.empty() && monotonic_ns() < deadline; reap_closing()) progress();
  const std::lock_guard lock(init_mutex());
  if (worker_) ucx_.worker_destroy(worker_);
  regions_.reset();
  if (context_) ucx_.cleanup(context_);
}

Expected<std::string> UcxWorker::address() const {
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
  const ucs_status_t status = ucx_.worker_query(worker_, &attributes);
  if (status != UCS_OK) return ucx_error(ucx_, "the worker's address", status);
  std::string address(reinterpret_cast<const char*>(attributes.address), attributes.address_length);
  ucx_.worker_release_address(worker_, attributes.address);
  return address;
}

void UcxWorker::on_message(ucp_am_recv_callback_t handler, void* arg) {
  ucp_am_handler_param_t params{};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG;
  params.cb = handler;
  params.arg = arg;
  ucx_.worker_set_am_recv_handler(worker_, &params);
}

Expected<ucp_ep_h> UcxWorker::connect(std::string_view address, ucp_err_handler_cb_t on_error,
                                      void* arg) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_error, arg};
  ucp_ep_h endpoint = nullptr;
  const ucs_status_t status = ucx_.ep_create(worker_, &params, &endpoint);
  if (status == UCS_ERR_UNREACHABLE) {
    return ucx_error(ucx_, "nothing in UCX_TLS both reaches it and would notice its death", status);
  }
  if (status != UCS_OK) return ucx_error(ucx_, "make an endpoint", status);
  return endpoint;
}

void UcxWorker::close(ucp_ep_h endpoint) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucx_.ep_close_nbx(endpoint, &param);
  if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
  reap_closing();
}

void UcxWorker::reap_closing() {
  std::erase_if(closing_, [&](void* request) {
    if (ucx_.request_check_status(request) == UCS_INPROGRESS) return false;
    ucx_.request_free(request);
    return true;
  });
}

ucs_status_ptr_t UcxWorker::send(ucp_ep_h endpoint, std::span<const std::byte> head,
                                 std::span<const std::byte> data, Way way,
                                 ucp_send_nbx_callback_t done, void* arg) const {
  ucp_request_param_t param = send_param(done, arg);
  param.flags = way == Way::eager ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV;
  return ucx_.am_send_nbx(endpoint, 0, head.data(), head.size(), data.data(), data.size(), &param);
}

ucs_status_ptr_t UcxWorker::send_direct(ucp_ep_h endpoint, std::span<const std::byte> head,
                                        std::span<const std::byte> data, std::uint64_t memory,
                                        ucp_send_nbx_callback_t done, void* arg) const {
  ucp_request_param_t param = send_param(done, arg);
  param.flags = UCP_AM_SEND_FLAG_RNDV;
  name_region(param, data, memory);
  return ucx_.am_send_nbx(endpoint, 0, head.data(), head.size(), data.data(), data.size(), &param);
}

ucs_status_ptr_t UcxWorker::flush(ucp_ep_h endpoint, ucp_send_nbx_callback_t done,
                                  void* arg) const {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = done;
  param.user_data = arg;
  return ucx_.ep_flush_nbx(endpoint, &param);
}

ucs_status_ptr_t UcxWorker::fetch(void* message, std::byte* into, std::size_t bytes,
                                  ucp_am_recv_data_nbx_callback_t done, void* arg) const {
  const ucp_request_param_t param = fetch_param(done, arg);
  return ucx_.am_recv_data_nbx(worker_, message, into, bytes, &param);
}

ucs_status_ptr_t UcxWorker::fetch_direct(void* message, std::span<std::byte> into,
                                         std::uint64_t memory, ucp_am_recv_data_nbx_callback_t done,
                                         void* arg) const {
  ucp_request_param_t param = fetch_param(done, arg);
  name_region(param, into, memory);
  return ucx_.am_recv_data_nbx(worker_, message, into.data(), into.size(), &param);
}

void UcxWorker::name_region(ucp_request_param_t& param, std::span<const std::byte> data,
                            std::uint64_t memory) const {
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = regions_->type();
  param.memh = regions_->of(memory, data.data(), data.size());
  if (param.memh) param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
}

UcxSupport ucx_support(const std::string& host) {
  UcxSupport support;
  const Expected<std::unique_ptr<UcxWorker>> worker = UcxWorker::create(host);
  if (!worker) {
    support.why_not = worker.error();
    return support;
  }
  support.version = (*worker)->ucx().get_version_string();
  support.devices = (*worker)->devices();
  support.rdma = (*worker)->rdma();
  return support;
}

bool host_has_rdma() {
  std::error_code none;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", none);
  return !none && devices != std::filesystem::directory_iterator();
}

}  // namespace pith
