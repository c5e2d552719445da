// Who may send how many frames.
#include "catch.hpp"
#include "transport/verbs/verbs_credits.hpp"

// The sender's messages wait in the receiver's slots. Then it sends words, each of which the
// receiver takes: at the latest when there is no room left the receiver has a credit to send.
TEST_CASE("verbs: a sender of words is never left without credit", "[verbs]") {
  for (std::uint32_t window = 4; window <= 200; ++window) {
    pith::VerbsCredits sender;
    pith::VerbsCredits receiver;
    sender.theirs = receiver.ours = window;
    while (sender.room_for_message()) sender.spend();
    while (sender.room_for_word()) {
      sender.spend();
      receiver.take();
    }
    INFO("window " << window);
    CHECK(receiver.owes());
  }
}
