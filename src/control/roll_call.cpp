#include "control/roll_call.hpp"

#include <algorithm>

#include "control/control_messages.hpp"

namespace pith {

namespace {

// A rank that has stopped is not waited for longer.
constexpr std::uint64_t patience_ns = 5'000'000'000;

}  // namespace

void RollCall::begin() {
  due_ = true;
  since_ns_ = 0;
  gone_ = ~0u;
}

bool RollCall::is_complete() {
  if (!due_) return true;
  if (since_ns_ == 0) since_ns_ = context_.now_ns;
  const auto gone = static_cast<std::uint32_t>(context_.membership.gone());
  if (gone != gone_) {
    gone_ = gone;
    present_ = {context_.options.rank};
    roll_ = message(MessageKind::roll).value(context_.options.rank).value(gone).take();
    tree_.send_down(roll_);
  }
  due_ = context_.now_ns - since_ns_ <= patience_ns && !all_present();
  return !due_;
}

bool RollCall::all_present() const {
  return std::ranges::all_of(context_.membership.living(),
                             [this](int rank) { return present_.contains(rank); });
}

void RollCall::hear_roll(Unpacker& in, const std::string& whole) {
  const int caller = in.value<int>();
  const auto gone = in.value<std::uint32_t>();
  if (!in.whole() || tree_.is_root()) return;
  roll_ = whole;
  tree_.send_down(whole);
  Packer packer = message(MessageKind::present);
  tree_.send_up(packer.value(context_.options.rank).value(caller).value(gone).take());
}

void RollCall::hear_present(Unpacker& in, const std::string& whole) {
  if (!tree_.is_root()) return tree_.send_up(whole);
  const int rank = in.value<int>();
  const int caller = in.value<int>();
  if (caller == context_.options.rank && in.value<std::uint32_t>() == gone_) present_.insert(rank);
}

void RollCall::tell(int child) {
  if (!roll_.empty()) tree_.send(child, roll_);
}

}  // namespace pith
