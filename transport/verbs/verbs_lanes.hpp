// The data connections of a pair, one a rail, over which granted messages are written. They can be
// stopped at once, which is how an aborted call's memory is taken from the device, and start anew
// while the control connection goes on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/verbs/verbs_frames.hpp"
#include "transport/verbs/verbs_tag.hpp"

namespace pith {

class VerbsLanes {
 public:
  explicit VerbsLanes(int peer) : peer_(peer) {}

  // Completions that one lane can have at once.
  static std::size_t completions() { return writes_max + verbs_grants_max; }

  Error make(std::span<const std::unique_ptr<VerbsRail>> rails);
  // The peer's rails and this rank's are paired in order; the shorter list counts.
  Error meet(std::span<const VerbsPlace> places, std::span<const VerbsEnd> theirs);
  Error open();
  void close();

  std::size_t count() const { return count_; }
  std::vector<VerbsEnd> ends() const;
  const std::string& port(std::size_t lane) const { return lanes_[lane].pair.port(); }
  std::uint32_t epoch() const { return epoch_; }
  bool is_open() const { return open_; }

  // The longest part of a message that one request writes.
  std::size_t request_bytes() const { return request_bytes_; }
  // How many lanes a message of this length goes over; both ends compute it.
  std::size_t lanes_for(std::size_t bytes) const;

  bool has_room(std::size_t lane, std::size_t requests) const {
    // Until its completion has been acted upon, a request's name is needed.
    return lanes_[lane].posted - lanes_[lane].departed + requests <= writes_max;
  }
  // Writes to the peer's memory. 0, or an errno.
  int write(std::size_t lane, std::span<const std::byte> data, const VerbsRegion& region,
            std::uint64_t place, std::uint32_t key);
  // Tells the peer that all that went over this lane before is there. `arrival`: its name for it;
  // `departure`: ours, which departed() returns once the peer's device has acknowledged it.
  int notify(std::size_t lane, std::uint32_t arrival, std::uint32_t departure);

  // Counts a completion of data; it does nothing else, so that stop() can be waited for anywhere.
  void count(const ibv_wc& completion);
  // Whether a completion is of the present epoch.
  bool is_current(const ibv_wc& completion) const;
  // For each completion of data sent of the present epoch, in order: the message of which a lane's
  // share has been written, if it succeeded, or -1: a part.
  std::int64_t departed(const ibv_wc& completion);
  // A notice has been taken; its receive is for the next one.
  int renew_receive(std::size_t lane) { return post_receive(lane); }

  // Nothing new is posted; what was posted ends. is_quiet() once its completions are counted.
  Error stop();
  bool is_quiet() const;
  // Quiet lanes begin another epoch, and wait for the peer's to do the same.
  Error begin_epoch(std::uint32_t epoch, VerbsRestart& restart);
  Error resume(const VerbsRestart& theirs);

 private:
  static constexpr std::uint32_t writes_max = 64;
  static constexpr std::size_t bytes_of_lane = std::size_t{128} << 10;
  static constexpr std::int64_t part = -1;

  struct Lane {
    VerbsQueuePair pair;
    std::uint32_t posted = 0;
    std::uint32_t completed = 0;
    std::uint32_t departed = 0;
    int receives = 0;
    std::array<std::int64_t, writes_max> names{};  // of posted requests, by number
  };
  int post(std::size_t lane, ibv_send_wr& work, std::int64_t name);
  int post_receive(std::size_t lane);
  std::uint64_t tag(VerbsWork work, std::size_t lane) const;
  Error meet_all(std::span<const VerbsEnd> theirs);

  const int peer_;
  std::vector<Lane> lanes_;
  std::size_t count_ = 0;  // of lanes in use
  std::vector<VerbsPlace> places_;
  std::vector<VerbsEnd> theirs_;
  std::uint32_t epoch_ = 0;
  bool open_ = false;
  std::size_t request_bytes_ = 0;
};

}  // namespace pith
