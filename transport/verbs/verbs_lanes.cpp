#include "transport/verbs/verbs_lanes.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

namespace pith {

Error VerbsLanes::make(std::span<const std::unique_ptr<VerbsRail>> rails) {
  lanes_.resize(rails.size());
  for (std::size_t r = 0; r < rails.size(); ++r) {
    VerbsDepth wanted{writes_max, verbs_grants_max, 0};
    Expected<VerbsQueuePair> pair = VerbsQueuePair::make(*rails[r], wanted);
    if (!pair) return pair.error();
    lanes_[r].pair = std::move(*pair);
    const std::size_t most = rails[r]->message_bytes();
    request_bytes_ = r == 0 ? most : std::min(request_bytes_, most);
  }
  count_ = lanes_.size();
  return {};
}

std::vector<VerbsEnd> VerbsLanes::ends() const {
  std::vector<VerbsEnd> all;
  all.reserve(lanes_.size());
  for (const Lane& lane : lanes_) all.push_back(lane.pair.end());
  return all;
}

Error VerbsLanes::meet(std::span<const VerbsPlace> places, std::span<const VerbsEnd> theirs) {
  count_ = std::min(lanes_.size(), places.size());
  places_.assign(places.begin(), places.end());
  theirs_.assign(theirs.begin(), theirs.end());
  return meet_all(theirs);
}

Error VerbsLanes::meet_all(std::span<const VerbsEnd> theirs) {
  for (std::size_t l = 0; l < count_; ++l) {
    if (Error error = lanes_[l].pair.meet(places_[l], theirs[l])) return error;
  }
  return {};
}

Error VerbsLanes::open() {
  for (std::size_t l = 0; l < count_; ++l) {
    for (std::size_t r = 0; r < verbs_grants_max; ++r) {
      if (const int error = post_receive(l); error != 0) {
        return system_error(fmt::format("post receives for {}", port(l)), error);
      }
    }
    if (Error error = lanes_[l].pair.open()) return error;
  }
  open_ = true;
  return {};
}

void VerbsLanes::close() {
  open_ = false;
  for (Lane& lane : lanes_) lane.pair.destroy();
}

std::size_t VerbsLanes::lanes_for(std::size_t bytes) const {
  return std::clamp<std::size_t>(bytes / bytes_of_lane, 1, count_);
}

std::uint64_t VerbsLanes::tag(VerbsWork work, std::size_t lane) const {
  const VerbsDataValue value{static_cast<std::uint32_t>(lane), epoch_};
  return VerbsTag{work, static_cast<std::uint32_t>(peer_), value.pack()}.pack();
}

int VerbsLanes::post_receive(std::size_t lane) {
  ibv_recv_wr work{};
  work.wr_id = tag(VerbsWork::data_came, lane);
  const int error = lanes_[lane].pair.post(work);
  if (error == 0) ++lanes_[lane].receives;
  return error;
}

int VerbsLanes::post(std::size_t lane, ibv_send_wr& work, std::int64_t name) {
  Lane& at = lanes_[lane];
  work.wr_id = tag(VerbsWork::data_sent, lane);
  work.send_flags |= IBV_SEND_SIGNALED;
  at.names[at.posted % writes_max] = name;
  const int error = at.pair.post(work);
  if (error == 0) ++at.posted;
  return error;
}

int VerbsLanes::write(std::size_t lane, std::span<const std::byte> data, const VerbsRegion& region,
                      std::uint64_t place, std::uint32_t key) {
  ibv_sge from{};
  from.addr = reinterpret_cast<std::uint64_t>(data.data());
  from.length = static_cast<std::uint32_t>(data.size());
  from.lkey = region.local_key(lane);
  ibv_send_wr work{};
  work.opcode = IBV_WR_RDMA_WRITE;
  work.sg_list = &from;
  work.num_sge = 1;
  work.wr.rdma.remote_addr = place;
  work.wr.rdma.rkey = key;
  return post(lane, work, part);
}

// The order of a reliable connection, not the order in which bytes become visible, says that all is
// there: networks that route packets adaptively deliver them in any order.
int VerbsLanes::notify(std::size_t lane, std::uint32_t arrival, std::uint32_t departure) {
  ibv_send_wr work{};
  work.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  work.imm_data = htonl(arrival);
  return post(lane, work, departure);
}

void VerbsLanes::count(const ibv_wc& completion) {
  const VerbsTag tag = VerbsTag::unpack(completion.wr_id);
  const VerbsDataValue value = VerbsDataValue::unpack(tag.value);
  if (value.lane >= lanes_.size()) return;
  Lane& lane = lanes_[value.lane];
  if (tag.work == VerbsWork::data_sent) {
    ++lane.completed;
  } else {
    --lane.receives;
  }
}

bool VerbsLanes::is_current(const ibv_wc& completion) const {
  const std::uint32_t value = VerbsTag::unpack(completion.wr_id).value;
  return VerbsDataValue::unpack(value).epoch == (epoch_ & VerbsDataValue::epoch_mask);
}

std::int64_t VerbsLanes::departed(const ibv_wc& completion) {
  Lane& lane = lanes_[VerbsDataValue::unpack(VerbsTag::unpack(completion.wr_id).value).lane];
  return lane.names[lane.departed++ % writes_max];
}

Error VerbsLanes::stop() {
  open_ = false;
  for (std::size_t l = 0; l < count_; ++l) {
    if (Error error = lanes_[l].pair.stop()) return error;
  }
  return {};
}

bool VerbsLanes::is_quiet() const {
  return std::ranges::all_of(
      lanes_, [](const Lane& lane) { return lane.posted == lane.completed && lane.receives == 0; });
}

Error VerbsLanes::begin_epoch(std::uint32_t epoch, VerbsRestart& restart) {
  epoch_ = epoch;
  for (std::size_t l = 0; l < count_; ++l) {
    Lane& lane = lanes_[l];
    const Expected<std::uint32_t> first = random_first_packet();
    if (!first) return first.error();
    if (Error error = lane.pair.reset(*first)) return error;
    lane.posted = lane.completed = lane.departed = 0;
    restart.first_packets[l] = *first;
  }
  return {};
}

Error VerbsLanes::resume(const VerbsRestart& theirs) {
  for (std::size_t l = 0; l < count_; ++l) {
    theirs_[l].first_packet = theirs.first_packets[l] & 0xffffff;
  }
  if (Error error = meet_all(theirs_)) return error;
  return open();
}

}  // namespace pith
