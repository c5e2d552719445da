#include "tests/transport/fake_verbs.hpp"

#include <arpa/inet.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "tests/transport/fake_network.hpp"

namespace pith::test {
namespace {

struct Held {
  std::lock_guard<std::recursive_mutex> hold{network().mutex};
};

void complete(ibv_cq* queue, const Completion& completion) {
  auto& to = *static_cast<Queue*>(queue);
  if (to.completions.size() == static_cast<std::size_t>(to.cqe)) {
    throw std::runtime_error("a completion queue overflows");
  }
  to.completions.push_back(completion);
  if (!std::exchange(to.armed, false)) return;
  static_cast<Channel*>(to.channel)->events.push_back(queue);
  eventfd_write(to.channel->fd, 1);
}

Completion completion_of(const Pair& pair, std::uint64_t id, ibv_wc_status status,
                         ibv_wc_opcode opcode) {
  Completion completion;
  completion.pair = pair.qp_num;
  completion.entry.wr_id = id;
  completion.entry.status = status;
  completion.entry.opcode = opcode;
  return completion;
}

// Of the oldest request, and those before it that were not signalled.
void complete_send(Pair& pair, ibv_wc_status status) {
  Completion completion = completion_of(pair, pair.sends.front().work.wr_id, status, IBV_WC_SEND);
  completion.sends = std::exchange(pair.unsignalled, 0) + 1;
  complete(pair.send_cq, completion);
}

void fail_all(Pair& pair, ibv_wc_status first) {
  pair.is = IBV_QPS_ERR;
  for (; !pair.sends.empty(); pair.sends.pop_front()) {
    complete_send(pair, std::exchange(first, IBV_WC_WR_FLUSH_ERR));
  }
  for (const auto& [id, part] : pair.receives) {
    complete(pair.recv_cq, completion_of(pair, id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV));
  }
  pair.receives.clear();
}

std::vector<std::byte> payload_of(const Request& request) {
  if (request.work.send_flags & IBV_SEND_INLINE) return request.inlined;
  std::vector<std::byte> payload;
  for (int p = 0; p < request.work.num_sge; ++p) {
    const ibv_sge& part = request.work.sg_list[p];
    const auto* data = reinterpret_cast<const std::byte*>(part.addr);
    payload.insert(payload.end(), data, data + part.length);
  }
  return payload;
}

bool local_memory_is_registered(const Pair& pair, const Request& request) {
  if (request.work.send_flags & IBV_SEND_INLINE) return true;
  for (int p = 0; p < request.work.num_sge; ++p) {
    const ibv_sge& part = request.work.sg_list[p];
    const auto found = network().regions.find(part.lkey);
    if (found == network().regions.end() || found->second->pd != pair.pd) return false;
    if (!found->second->holds(part.addr, part.length)) return false;
  }
  return true;
}

bool may_write(const Pair& to, const Request& request, std::size_t bytes) {
  if (!(to.access & IBV_ACCESS_REMOTE_WRITE)) return false;
  if (bytes == 0) return true;
  const auto found = network().regions.find(request.work.wr.rdma.rkey);
  if (found == network().regions.end()) return false;
  const Region& region = *found->second;
  return region.pd == to.pd && (region.access & IBV_ACCESS_REMOTE_WRITE) &&
         region.holds(request.work.wr.rdma.remote_addr, bytes);
}

// The receiver of a pair's packets; null: they are lost.
Pair* receiver_of(const Pair& pair) {
  const int cut = network().settings.cut_device;
  if (cut >= 0 && pair.pd->context->device == &network().devices[cut]) return nullptr;
  const auto found = network().pairs.find(pair.peer);
  if (found == network().pairs.end()) return nullptr;
  Pair* to = found->second;
  const bool ready = to->is == IBV_QPS_RTR || to->is == IBV_QPS_RTS;
  const bool meant = to->peer == pair.qp_num && to->receive_packet == pair.send_packet;
  return ready && meant ? to : nullptr;
}

// Carries out the first request of a pair; false: it stays.
bool carry_out(Pair& pair) {
  Request& request = pair.sends.front();
  Pair* to = receiver_of(pair);
  if (!to) {
    const std::uint64_t now = monotonic_ns();
    if (request.lost_since == 0) request.lost_since = now;
    if (now - request.lost_since > network().settings.gives_up_ns) {
      fail_all(pair, IBV_WC_RETRY_EXC_ERR);
    }
    return false;
  }
  const ibv_wr_opcode opcode = request.work.opcode;
  const bool takes_receive = opcode != IBV_WR_RDMA_WRITE;
  if (takes_receive && to->receives.empty()) return false;
  if (!local_memory_is_registered(pair, request)) {
    fail_all(pair, IBV_WC_LOC_PROT_ERR);
    return false;
  }
  const std::vector<std::byte> payload = payload_of(request);
  if (opcode != IBV_WR_SEND && !may_write(*to, request, payload.size())) {
    fail_all(pair, IBV_WC_REM_ACCESS_ERR);
    return false;
  }
  if (opcode != IBV_WR_SEND && !payload.empty()) {
    std::ranges::copy(payload, reinterpret_cast<std::byte*>(request.work.wr.rdma.remote_addr));
  }
  if (takes_receive) {
    const auto [id, part] = to->receives.front();
    to->receives.pop_front();
    Completion arrival = completion_of(*to, id, IBV_WC_SUCCESS, IBV_WC_RECV);
    arrival.entry.byte_len = static_cast<std::uint32_t>(payload.size());
    arrival.entry.imm_data = request.work.imm_data;
    if (opcode == IBV_WR_SEND) std::ranges::copy(payload, reinterpret_cast<std::byte*>(part.addr));
    complete(to->recv_cq, arrival);
  }
  if (request.work.send_flags & IBV_SEND_SIGNALED) {
    complete_send(pair, IBV_WC_SUCCESS);
  } else {
    ++pair.unsignalled;
  }
  pair.sends.pop_front();
  return true;
}

void carry_out_some(int most) {
  auto& sending = network().sending;
  for (auto at = sending.begin(); at != sending.end();) {
    Pair& pair = *at->second;
    while (most > 0 && pair.is == IBV_QPS_RTS && !pair.sends.empty() && carry_out(pair)) --most;
    at = pair.sends.empty() ? sending.erase(at) : std::next(at);
  }
}

ibv_device** get_device_list(int* count) {
  const Held held;
  *count = network().settings.devices;
  auto** list = new ibv_device*[4];
  for (int d = 0; d < 4; ++d) list[d] = &network().devices[d];
  return list;
}

ibv_context* open_device(ibv_device* device) {
  const Held held;
  ++network().objects;
  auto* context = new ibv_context{};
  context->device = device;
  context->async_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  return context;
}

int close_device(ibv_context* context) {
  const Held held;
  --network().objects;
  close(context->async_fd);
  delete context;
  return 0;
}

int query_device(ibv_context*, ibv_device_attr* attributes) {
  *attributes = {};
  attributes->max_cqe = 1 << 20;
  attributes->phys_port_cnt = 1;
  return 0;
}

int query_port(ibv_context*, std::uint8_t, ibv_port_attr* attributes) {
  attributes->state = IBV_PORT_ACTIVE;
  attributes->active_mtu = IBV_MTU_4096;
  attributes->gid_tbl_len = 2;
  attributes->pkey_tbl_len = 3;
  attributes->max_msg_sz = network().settings.request_bytes;
  attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

int query_gid(ibv_context*, std::uint32_t, std::uint32_t index, ibv_gid_entry* entry) {
  entry->gid_index = index;
  entry->gid_type = index == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
  entry->gid.raw[10] = entry->gid.raw[11] = 0xff;
  entry->gid.raw[12] = 127;
  entry->gid.raw[15] = 1;
  return 0;
}

template <class T>
T* made(T* object) {
  const Held held;
  ++network().objects;
  return object;
}

ibv_pd* alloc_pd(ibv_context* context) {
  auto* domain = made(new ibv_pd{});
  domain->context = context;
  return domain;
}

template <class Base, class T>
int destroy(Base* object) {
  const Held held;
  --network().objects;
  delete static_cast<T*>(object);
  return 0;
}

ibv_mr* reg_mr(ibv_pd* domain, void* data, std::size_t bytes, int access) {
  const Held held;
  const bool own = !(access & IBV_ACCESS_REMOTE_WRITE) && (access & IBV_ACCESS_LOCAL_WRITE);
  if (!network().settings.registers && !own) {
    errno = network().settings.refusal;
    return nullptr;
  }
  auto* region = made(new Region());
  region->pd = domain;
  region->addr = data;
  region->length = bytes;
  region->access = access;
  region->lkey = region->rkey = ++network().next;
  network().regions[region->lkey] = region;
  return region;
}

int dereg_mr(ibv_mr* region) {
  const Held held;
  network().regions.erase(region->lkey);
  return destroy<ibv_mr, Region>(region);
}

ibv_comp_channel* create_channel(ibv_context* context) {
  auto* channel = made(new Channel());
  channel->context = context;
  channel->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE);
  return channel;
}

int destroy_channel(ibv_comp_channel* channel) {
  close(channel->fd);
  return destroy<ibv_comp_channel, Channel>(channel);
}

ibv_cq* create_cq(ibv_context* context, int entries, void*, ibv_comp_channel* channel, int) {
  auto* queue = made(new Queue());
  queue->context = context;
  queue->channel = channel;
  queue->cqe = entries;
  return queue;
}

int get_cq_event(ibv_comp_channel* channel, ibv_cq** queue, void**) {
  const Held held;
  auto& from = *static_cast<Channel*>(channel);
  eventfd_t count = 0;
  if (eventfd_read(channel->fd, &count) != 0) return -1;
  *queue = from.events.front();
  from.events.pop_front();
  return 0;
}

ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  const Held held;
  if (attributes->cap.max_inline_data > network().settings.inlined) {
    errno = EINVAL;
    return nullptr;
  }
  auto* pair = made(new Pair());
  pair->pd = domain;
  pair->send_cq = attributes->send_cq;
  pair->recv_cq = attributes->recv_cq;
  pair->qp_num = ++network().next;
  pair->sends_max = attributes->cap.max_send_wr;
  pair->receives_max = attributes->cap.max_recv_wr;
  network().pairs[pair->qp_num] = pair;
  return pair;
}

bool follows(ibv_qp_state was, ibv_qp_state is) {
  return is == IBV_QPS_RESET || is == IBV_QPS_ERR || (was == IBV_QPS_RESET && is == IBV_QPS_INIT) ||
         (was == IBV_QPS_INIT && is == IBV_QPS_RTR) || (was == IBV_QPS_RTR && is == IBV_QPS_RTS);
}

int modify_qp(ibv_qp* handle, ibv_qp_attr* attributes, int mask) {
  const Held held;
  auto& pair = *static_cast<Pair*>(handle);
  const ibv_qp_state to = attributes->qp_state;
  if (!follows(pair.is, to)) return EINVAL;
  if (to == IBV_QPS_ERR) {
    fail_all(pair, IBV_WC_WR_FLUSH_ERR);
    return 0;
  }
  pair.is = to;
  if (to == IBV_QPS_RESET) {
    pair.sends.clear();
    pair.receives.clear();
    pair.sends_kept = pair.unsignalled = 0;
  }
  if (mask & IBV_QP_ACCESS_FLAGS) pair.access = static_cast<int>(attributes->qp_access_flags);
  if (mask & IBV_QP_DEST_QPN) pair.peer = attributes->dest_qp_num;
  if (mask & IBV_QP_RQ_PSN) pair.receive_packet = attributes->rq_psn;
  if (mask & IBV_QP_SQ_PSN) pair.send_packet = attributes->sq_psn;
  return 0;
}

int destroy_qp(ibv_qp* handle) {
  const Held held;
  network().pairs.erase(handle->qp_num);
  network().sending.erase(handle->qp_num);
  return destroy<ibv_qp, Pair>(handle);
}

int post_send(ibv_qp* handle, ibv_send_wr* work, ibv_send_wr**) {
  const Held held;
  auto& pair = *static_cast<Pair*>(handle);
  if (pair.is != IBV_QPS_RTS && pair.is != IBV_QPS_ERR) return EINVAL;
  if (pair.sends_kept >= pair.sends_max) return ENOMEM;
  ++pair.sends_kept;
  Request& request = pair.sends.emplace_back();
  request.work = *work;
  std::copy_n(work->sg_list, work->num_sge, request.parts);
  request.work.sg_list = request.parts;
  if (work->send_flags & IBV_SEND_INLINE) {
    request.work.send_flags &= ~static_cast<unsigned>(IBV_SEND_INLINE);
    request.inlined = payload_of(request);
    request.work.send_flags |= IBV_SEND_INLINE;
  }
  network().sending[pair.qp_num] = &pair;
  if (pair.is == IBV_QPS_ERR) fail_all(pair, IBV_WC_WR_FLUSH_ERR);
  return 0;
}

int post_recv(ibv_qp* handle, ibv_recv_wr* work, ibv_recv_wr**) {
  const Held held;
  auto& pair = *static_cast<Pair*>(handle);
  if (pair.is == IBV_QPS_RESET) return EINVAL;
  if (pair.receives.size() >= pair.receives_max) return ENOMEM;
  pair.receives.emplace_back(work->wr_id, work->num_sge != 0 ? work->sg_list[0] : ibv_sge{});
  if (pair.is == IBV_QPS_ERR) fail_all(pair, IBV_WC_WR_FLUSH_ERR);
  return 0;
}

int poll_cq(ibv_cq* handle, int entries, ibv_wc* completions) {
  const Held held;
  if (network().settings.polls_fail) return -1;
  carry_out_some(network().settings.requests_a_look);
  auto& queue = *static_cast<Queue*>(handle);
  int count = 0;
  for (; count < entries && !queue.completions.empty(); ++count) {
    const Completion completion = queue.completions.front();
    queue.completions.pop_front();
    completions[count] = completion.entry;
    const auto pair = network().pairs.find(completion.pair);
    if (pair != network().pairs.end()) pair->second->sends_kept -= completion.sends;
  }
  return count;
}

int req_notify(ibv_cq* queue, int) {
  const Held held;
  static_cast<Queue*>(queue)->armed = true;
  return 0;
}

int get_async_event(ibv_context* context, ibv_async_event* event) {
  const Held held;
  auto& events = network().events;
  if (context->device != network().devices || events.empty()) return -1;
  *event = events.front();
  events.pop_front();
  return 0;
}

const char* name_of_event(ibv_event_type type) {
  return type == IBV_EVENT_PORT_ERR ? "port error" : "device failed";
}

VerbsLibrary make_library() {
  VerbsLibrary verbs;
  verbs.get_device_list = get_device_list;
  verbs.free_device_list = [](ibv_device** list) { delete[] list; };
  verbs.get_device_name = [](ibv_device* device) -> const char* { return device->name; };
  verbs.open_device = open_device;
  verbs.close_device = close_device;
  verbs.query_device = query_device;
  verbs.query_port = query_port;
  verbs.query_gid_ex = query_gid;
  verbs.alloc_pd = alloc_pd;
  verbs.dealloc_pd = destroy<ibv_pd, ibv_pd>;
  verbs.reg_mr = reg_mr;
  verbs.dereg_mr = dereg_mr;
  verbs.create_comp_channel = create_channel;
  verbs.destroy_comp_channel = destroy_channel;
  verbs.create_cq = create_cq;
  verbs.destroy_cq = destroy<ibv_cq, Queue>;
  verbs.get_cq_event = get_cq_event;
  verbs.ack_cq_events = [](ibv_cq*, unsigned) {};
  verbs.create_qp = create_qp;
  verbs.modify_qp = modify_qp;
  verbs.destroy_qp = destroy_qp;
  verbs.get_async_event = get_async_event;
  verbs.ack_async_event = [](ibv_async_event*) {};
  verbs.event_type_str = name_of_event;
  verbs.wc_status_str = [](ibv_wc_status status) {
    return status == IBV_WC_RETRY_EXC_ERR ? "no answer" : "an error";
  };
  verbs.post_send = post_send;
  verbs.post_recv = post_recv;
  verbs.poll_cq = poll_cq;
  verbs.req_notify_cq = req_notify;
  return verbs;
}

}  // namespace

FakeVerbs& FakeVerbs::instance() { return network().settings; }

void FakeVerbs::change(const std::function<void(FakeVerbs&)>& by) {
  const Held held;
  by(network().settings);
}

const VerbsLibrary& FakeVerbs::library() {
  static const VerbsLibrary verbs = make_library();
  return verbs;
}

int FakeVerbs::objects() {
  const Held held;
  return network().objects;
}

std::size_t FakeVerbs::registered(const void* byte) {
  const Held held;
  const auto at = reinterpret_cast<std::uint64_t>(byte);
  std::size_t bytes = 0;
  for (const auto& [key, region] : network().regions) {
    const bool writable = (region->access & IBV_ACCESS_REMOTE_WRITE) && region->holds(at, 1);
    bytes += !byte || writable ? region->length : 0;
  }
  return bytes;
}

// Those of data connections take receives without memory.
void FakeVerbs::break_pairs() {
  const Held held;
  for (const auto& [number, pair] : network().pairs) {
    const bool data = !pair->receives.empty() && pair->receives.front().second.length == 0;
    if (data && pair->is == IBV_QPS_RTS) fail_all(*pair, IBV_WC_FATAL_ERR);
  }
}

void FakeVerbs::tell(ibv_event_type type, int port) {
  const Held held;
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = port;
  network().events.push_back(event);
}

}  // namespace pith::test
