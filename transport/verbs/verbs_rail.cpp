#include "transport/verbs/verbs_rail.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/log.hpp"
#include "transport/locked_memory.hpp"

namespace pith {
namespace {

// A device's own limit may be higher than one work request should be: progress is per request.
constexpr std::size_t message_bytes_max_of_request = std::size_t{1} << 30;

using Gid = std::uint8_t[16];

// An IPv4 address within an IPv6 one: ::ffff:a.b.c.d.
bool is_mapped_ip4(const Gid& gid) {
  static constexpr std::uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid, prefix, sizeof prefix) == 0;
}

bool is_link_local(const Gid& gid) { return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80; }

// The address in numbers as a GID has it; false: it is none.
bool as_gid(const std::string& host, Gid& gid) {
  in_addr four{};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) {
    std::memset(gid, 0, 10);
    gid[10] = gid[11] = 0xff;
    std::memcpy(gid + 12, &four, sizeof four);
    return true;
  }
  return inet_pton(AF_INET6, host.c_str(), gid) == 1;
}

// Of RoCE: version 2 can be routed and is what networks are set up for; addresses of IPv4 are the
// ones that administrators give.
int rank_of(const ibv_gid_entry& entry) {
  Gid gid;
  std::memcpy(gid, entry.gid.raw, sizeof gid);
  int rank = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 4 : 0;
  if (is_mapped_ip4(gid)) rank += 2;
  if (!is_link_local(gid)) rank += 1;
  return rank;
}

// "mlx5_0:1,mlx5_1" or "^mlx5_2"; a name without a port means all its ports.
bool allows(std::string_view wish, std::string_view device, int port) {
  if (wish.empty()) return true;
  const bool others = wish.starts_with('^');
  if (others) wish.remove_prefix(1);
  const std::string whole = fmt::format("{}:{}", device, port);
  while (!wish.empty()) {
    const std::string_view name = wish.substr(0, wish.find(','));
    wish.remove_prefix(std::min(wish.size(), name.size() + 1));
    if (name == device || name == whole) return !others;
  }
  return others;
}

// No error, as one setting may be for hosts that differ.
void tell_missing(std::string_view wish, const std::vector<std::string>& devices) {
  if (wish.starts_with('^')) wish.remove_prefix(1);
  while (!wish.empty()) {
    const std::string_view name = wish.substr(0, wish.find(','));
    wish.remove_prefix(std::min(wish.size(), name.size() + 1));
    if (std::ranges::find(devices, name.substr(0, name.find(':'))) != devices.end()) continue;
    log(LogLevel::info, fmt::format("PITH_VERBS names the RDMA device {}, this host has {}", name,
                                    fmt::join(devices, ", ")));
  }
}

int mtu_of(int bytes) {
  int mtu = IBV_MTU_256;
  while (mtu < IBV_MTU_4096 && (128 << (mtu + 1)) <= bytes) ++mtu;
  return mtu;
}

void set_nonblocking(int descriptor) {
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

}  // namespace

VerbsRail::~VerbsRail() {
  if (queue_) verbs_.destroy_cq(queue_);
  if (channel_) verbs_.destroy_comp_channel(channel_);
  if (domain_) verbs_.dealloc_pd(domain_);
  if (context_) verbs_.close_device(context_);
}

Error VerbsRail::find_gid(const ibv_port_attr& port) {
  ibv_gid_entry best{};
  int best_rank = -1;
  const bool ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  Gid host{};
  const bool by_host = ethernet && as_gid(wish_.host, host);
  // Queue pairs number them by a byte.
  for (int index = 0; index < std::min(port.gid_tbl_len, 256); ++index) {
    ibv_gid_entry entry{};
    if (wish_.gid >= 0 && index != wish_.gid) continue;
    if (verbs_.query_gid_ex(context_, port_, static_cast<std::uint32_t>(index), &entry) != 0) {
      continue;
    }
    int rank = ethernet ? rank_of(entry) : 0;
    if (by_host && std::memcmp(entry.gid.raw, host, sizeof host) == 0) rank += 8;
    if (rank <= best_rank) continue;
    best = entry;
    best_rank = rank;
  }
  if (best_rank < 0 && ethernet) {
    return {
        Code::system,
        wish_.gid >= 0
            ? fmt::format("port {} has no GID with index {} (gid= of PITH_VERBS)", name_, wish_.gid)
            : fmt::format("port {} has no GID: its network interface has no address", name_)};
  }
  gid_index_ = static_cast<std::uint8_t>(best.gid_index);
  std::memcpy(place_.gid, best.gid.raw, sizeof place_.gid);
  return {};
}

bool VerbsRail::carries_host() const {
  Gid host{};
  return as_gid(wish_.host, host) && std::memcmp(place_.gid, host, sizeof host) == 0;
}

Error VerbsRail::open_port(ibv_device* device, std::uint8_t port) {
  context_ = verbs_.open_device(device);
  if (!context_) {
    return {Code::system, fmt::format("RDMA device {} cannot be opened: this process may not read "
                                      "and write its file /dev/infiniband/uverbs...",
                                      verbs_.get_device_name(device))};
  }
  ibv_device_attr limits{};
  ibv_port_attr state{};
  if (int error = verbs_.query_device(context_, &limits); error != 0) {
    return system_error(fmt::format("ask RDMA device {}", name_), error);
  }
  port_ = port;
  queue_entries_max_ = limits.max_cqe;
  if (port > limits.phys_port_cnt) return {Code::invalid_argument, "no such port"};
  if (int error = verbs_.query_port(context_, port, &state); error != 0) {
    return system_error(fmt::format("ask RDMA port {}", name_), error);
  }
  if (state.state != IBV_PORT_ACTIVE) {
    return {Code::system, fmt::format("port {} is not active", name_)};
  }
  if (wish_.pkey >= state.pkey_tbl_len) {
    return {Code::system, fmt::format("port {} has {} partition keys, pkey= of PITH_VERBS is {}",
                                      name_, state.pkey_tbl_len, wish_.pkey)};
  }
  place_.lid = state.lid;
  place_.link_layer = state.link_layer;
  // With the wish, so that the peer knows of it.
  const int mtu =
      wish_.mtu == 0 ? state.active_mtu : std::min<int>(state.active_mtu, mtu_of(wish_.mtu));
  place_.mtu = static_cast<std::uint8_t>(mtu);
  message_bytes_ = std::min<std::size_t>(state.max_msg_sz, message_bytes_max_of_request);
  if (Error error = find_gid(state)) return error;
  domain_ = verbs_.alloc_pd(context_);
  if (!domain_) return system_error(fmt::format("a protection domain of {}", name_), errno);
  channel_ = verbs_.create_comp_channel(context_);
  if (!channel_) return system_error(fmt::format("a completion channel of {}", name_), errno);
  set_nonblocking(channel_->fd);
  set_nonblocking(context_->async_fd);
  return try_registration();
}

// Else start-up would fail where other transports do not.
Error VerbsRail::try_registration() const {
  constexpr std::size_t bytes = std::size_t{1} << 20;
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
  ibv_mr* const handle = verbs_.reg_mr(domain_, memory.get(), bytes, IBV_ACCESS_LOCAL_WRITE);
  if (!handle)
    return not_locked(fmt::format("register {} KiB with {}", bytes / 1024, name_), errno);
  verbs_.dereg_mr(handle);
  return {};
}

std::unique_ptr<VerbsRail> VerbsRail::open(const VerbsLibrary& verbs, const VerbsWish& wish,
                                           ibv_device* device, std::uint8_t port, Error& why_not) {
  std::unique_ptr<VerbsRail> rail(new VerbsRail(verbs, wish));
  rail->name_ = fmt::format("{}:{}", verbs.get_device_name(device), port);
  if (Error error = rail->open_port(device, port)) {
    if (error.code() != Code::invalid_argument) why_not = error;
    return nullptr;
  }
  return rail;
}

Expected<std::vector<std::unique_ptr<VerbsRail>>> VerbsRail::open_all(const VerbsLibrary& verbs,
                                                                      const VerbsWish& wish) {
  if (verbs.why_not) return verbs.why_not;
  int count = 0;
  ibv_device** devices = verbs.get_device_list(&count);
  if (!devices || count == 0) {
    if (devices) verbs.free_device_list(devices);
    return Error(Code::system, "this host has no RDMA device");
  }
  constexpr int most_ports = 4;
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(count));
  for (int d = 0; d < count; ++d) names.emplace_back(verbs.get_device_name(devices[d]));
  tell_missing(wish.devices, names);
  Error why_not(Code::system,
                fmt::format("no RDMA port fits devices= of PITH_VERBS, which is \"{}\"; this host "
                            "has {}",
                            wish.devices, fmt::join(names, ", ")));
  std::vector<std::unique_ptr<VerbsRail>> rails;
  for (int d = 0; d < count; ++d) {
    for (int port = 1; port <= most_ports; ++port) {
      if (!allows(wish.devices, verbs.get_device_name(devices[d]), port)) continue;
      auto rail = open(verbs, wish, devices[d], static_cast<std::uint8_t>(port), why_not);
      if (rail) rails.push_back(std::move(rail));
    }
  }
  verbs.free_device_list(devices);
  if (rails.empty()) return why_not;
  std::ranges::stable_partition(rails, [](const auto& rail) { return rail->carries_host(); });
  // Which of several ports lead to the same network is the user's knowledge.
  if (wish.devices.empty()) rails.resize(1);
  return rails;
}

Error VerbsRail::make_queue(std::size_t entries) {
  const std::size_t most = static_cast<std::size_t>(std::max(queue_entries_max_, 1));
  if (entries > most) {
    return {Code::system, fmt::format("RDMA device {} has completion queues of at most {} entries, "
                                      "this job's ranks need {}",
                                      name_, most, entries)};
  }
  queue_ = verbs_.create_cq(context_, static_cast<int>(entries), nullptr, channel_, 0);
  if (!queue_) return system_error(fmt::format("a completion queue of {}", name_), errno);
  return {};
}

// Who takes them misses this descriptor; all others know no such request.
bool VerbsRail::takes_dmabufs() const {
  if (!verbs_.reg_dmabuf_mr) return false;
  errno = 0;
  ibv_mr* const none = verbs_.reg_dmabuf_mr(domain_, 0, 0, 0, -1, 0);
  if (none) verbs_.dereg_mr(none);
  return !none && errno == EBADF;
}

Expected<std::size_t> VerbsRail::poll(std::span<ibv_wc> completions) {
  const int count =
      verbs_.poll_cq(queue_, static_cast<int>(completions.size()), completions.data());
  if (count < 0) {
    return Error(Code::system,
                 fmt::format("RDMA device {} reports no completions any more", name_));
  }
  return static_cast<std::size_t>(count);
}

Error VerbsRail::arm() {
  const int error = verbs_.req_notify_cq(queue_, 0);
  return error == 0 ? Error() : system_error(fmt::format("wait for RDMA port {}", name_), error);
}

void VerbsRail::disarm() {
  unsigned taken = 0;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (verbs_.get_cq_event(channel_, &queue, &context) == 0) ++taken;
  if (taken != 0) verbs_.ack_cq_events(queue_, taken);
}

VerbsRail::Event VerbsRail::take_event() {
  Event told;
  ibv_async_event event{};
  while (verbs_.get_async_event(context_, &event) == 0) {
    const ibv_event_type type = event.event_type;
    const bool is_end = type == IBV_EVENT_DEVICE_FATAL || type == IBV_EVENT_CQ_ERR;
    const bool is_port = type == IBV_EVENT_PORT_ERR && event.element.port_num == port_;
    if (!told.is_end && (is_end || is_port)) {
      told = {fmt::format("{}: {}", name_, verbs_.event_type_str(type)), is_end};
    }
    verbs_.ack_async_event(&event);
  }
  return told;
}

}  // namespace pith
