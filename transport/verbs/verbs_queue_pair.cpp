#include "transport/verbs/verbs_queue_pair.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "crypto/random_bytes.hpp"

namespace pith {
namespace {

// A peer that has no receive posted yet is asked again after about 0.6 ms, as often as it takes:
// connections are opened on one side before receives are posted on the other.
constexpr std::uint8_t asks_again_after = 12;
constexpr std::uint8_t asks_for_ever = 7;
constexpr std::uint8_t hop_limit = 64;

}  // namespace

Expected<std::uint32_t> random_first_packet() {
  std::array<std::byte, 4> bytes{};
  if (Error error = fill_random(bytes)) return error;
  std::uint32_t number = 0;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number & 0xffffff;
}

Expected<VerbsQueuePair> VerbsQueuePair::make(const VerbsRail& rail, VerbsDepth& depth) {
  const Expected<std::uint32_t> first = random_first_packet();
  if (!first) return first.error();
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = rail.queue();
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap.max_send_wr = depth.sends;
  wanted.cap.max_recv_wr = depth.receives;
  wanted.cap.max_send_sge = 2;
  wanted.cap.max_recv_sge = 1;
  wanted.cap.max_inline_data = depth.inlined;
  VerbsQueuePair made;
  made.rail_ = &rail;
  made.pair_ = rail.verbs().create_qp(rail.domain(), &wanted);
  if (!made.pair_ && depth.inlined != 0) {  // some devices refuse what they cannot inline
    wanted.cap.max_inline_data = depth.inlined = 0;
    made.pair_ = rail.verbs().create_qp(rail.domain(), &wanted);
  }
  if (!made.pair_) {
    return system_error(fmt::format("a queue pair of {} for {} sends and {} receives", rail.name(),
                                    depth.sends, depth.receives),
                        errno);
  }
  depth.inlined = std::min(depth.inlined, wanted.cap.max_inline_data);
  made.end_ = {made.pair_->qp_num, *first};
  if (Error error = made.make_ready()) return error;
  return made;
}

VerbsQueuePair& VerbsQueuePair::operator=(VerbsQueuePair&& other) noexcept {
  destroy();
  rail_ = other.rail_;
  pair_ = std::exchange(other.pair_, nullptr);
  end_ = other.end_;
  return *this;
}

void VerbsQueuePair::destroy() {
  if (pair_) rail_->verbs().destroy_qp(std::exchange(pair_, nullptr));
}

Error VerbsQueuePair::failed(const char* what, int error) const {
  return system_error(fmt::format("{} a queue pair of {}", what, rail_->name()), error);
}

Error VerbsQueuePair::make_ready() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = static_cast<std::uint16_t>(rail_->wish().pkey);
  attributes.port_num = rail_->port();
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const int error = rail_->verbs().modify_qp(
      pair_, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return error == 0 ? Error() : failed("prepare", error);
}

Error VerbsQueuePair::meet(const VerbsPlace& place, const VerbsEnd& theirs) {
  const VerbsWish& wish = rail_->wish();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(place.mtu, rail_->place().mtu));
  attributes.dest_qp_num = theirs.number;
  attributes.rq_psn = theirs.first_packet;
  attributes.max_dest_rd_atomic = 0;
  attributes.min_rnr_timer = asks_again_after;
  ibv_ah_attr& way = attributes.ah_attr;
  way.dlid = place.lid;
  way.sl = static_cast<std::uint8_t>(wish.level);
  way.port_num = rail_->port();
  way.is_global = place.link_layer == IBV_LINK_LAYER_ETHERNET || wish.gid >= 0 ? 1 : 0;
  if (way.is_global != 0) {
    std::memcpy(way.grh.dgid.raw, place.gid, sizeof place.gid);
    way.grh.sgid_index = rail_->gid_index();
    way.grh.hop_limit = hop_limit;
    way.grh.traffic_class = static_cast<std::uint8_t>(wish.traffic_class);
  }
  const int error = rail_->verbs().modify_qp(pair_, &attributes,
                                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                                 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                                 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  return error == 0 ? Error() : failed("connect", error);
}

Error VerbsQueuePair::open() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = static_cast<std::uint8_t>(rail_->wish().timeout);
  attributes.retry_cnt = static_cast<std::uint8_t>(rail_->wish().retries);
  attributes.rnr_retry = asks_for_ever;
  attributes.sq_psn = end_.first_packet;
  attributes.max_rd_atomic = 0;
  const int error =
      rail_->verbs().modify_qp(pair_, &attributes,
                               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return error == 0 ? Error() : failed("open", error);
}

Error VerbsQueuePair::stop() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  const int error = rail_->verbs().modify_qp(pair_, &attributes, IBV_QP_STATE);
  return error == 0 ? Error() : failed("stop", error);
}

Error VerbsQueuePair::reset(std::uint32_t first_packet) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  const int error = rail_->verbs().modify_qp(pair_, &attributes, IBV_QP_STATE);
  if (error != 0) return failed("reset", error);
  end_.first_packet = first_packet;
  return make_ready();
}

}  // namespace pith
