#include "tests/cuda_stub/simt/races.hpp"

#ifdef PITH_SIMT_TSAN
#include <sanitizer/tsan_interface.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <vector>
#endif

#ifdef PITH_SIMT_TSAN
extern "C" {  // of ThreadSanitizer's library, which has no header for them
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace pith::simt {

#ifdef PITH_SIMT_TSAN

void* races_new_fiber() { return __tsan_create_fiber(0); }
void races_end_fiber(void* fiber) { __tsan_destroy_fiber(fiber); }
void* races_this_fiber() { return __tsan_get_current_fiber(); }
void races_switch_to(void* fiber) { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }
void races_name(void* fiber, const char* name) { __tsan_set_fiber_name(fiber, name); }
void races_release(void* where) { __tsan_release(where); }
void races_acquire(void* where) { __tsan_acquire(where); }

namespace {

// Who has written, and the last fence before that.
struct Release {
  const Fences* by;
  Token* token;
};
using Releases = std::vector<Release>;

void put(Releases& releases, Release release) {
  const auto same = std::find_if(releases.begin(), releases.end(), [&](const Release& old) {
    return old.by == release.by && old.token == release.token;
  });
  if (same == releases.end()) releases.push_back(release);
}

}  // namespace

struct Fences::Read {
  Releases releases;
};

struct Words::Inside {
  void* scheduler = races_this_fiber();
  std::unordered_map<const void*, Releases> writers;
  // Reused when there have been that many fences, which then order more than they should.
  std::array<Token, 8192> tokens;
  std::size_t next = 0;
};

namespace {

// Memory is the scheduler's: ThreadSanitizer looks at who allocates it and who frees it. What else
// is done meanwhile is not looked at, as it is on the stack of the fiber.
class AsScheduler {
 public:
  explicit AsScheduler(void* scheduler) : self_(races_this_fiber()) {
    races_switch_to(scheduler);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~AsScheduler() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    races_switch_to(self_);
  }
  AsScheduler(const AsScheduler&) = delete;
  AsScheduler& operator=(const AsScheduler&) = delete;

 private:
  void* self_;
};

}  // namespace

Fences::Fences() : read(std::make_unique<Read>()) {}
Fences::~Fences() = default;
void Fences::clear() {
  last = nullptr;
  read->releases.clear();
}

Words::Words() : inside_(std::make_unique<Inside>()) {}
Words::~Words() = default;

void Words::fence(Fences& fences) {
  for (const Release& release : fences.read->releases) races_acquire(release.token);
  fences.read->releases.clear();
  fences.last = &inside_->tokens[inside_->next++ % inside_->tokens.size()];
  races_release(fences.last);
}

void Words::has_read(Fences& fences, const void* word) {
  const AsScheduler scope(inside_->scheduler);
  const auto found = inside_->writers.find(word);
  if (found == inside_->writers.end()) return;
  for (const Release& release : found->second) {
    if (release.by != &fences) put(fences.read->releases, release);
  }
}

void Words::writes(Fences& fences, const void* word) {
  const AsScheduler scope(inside_->scheduler);
  if (fences.last) {
    inside_->writers[word] = {{&fences, fences.last}};
  } else {
    inside_->writers.erase(word);
  }
}

void Words::modifies(Fences& fences, const void* word) {
  has_read(fences, word);
  if (!fences.last) return;
  const AsScheduler scope(inside_->scheduler);
  Releases& releases = inside_->writers[word];
  std::erase_if(releases, [&](const Release& old) { return old.by == &fences; });
  releases.push_back({&fences, fences.last});
}

#else

struct Fences::Read {};
struct Words::Inside {};
Fences::Fences() = default;
Fences::~Fences() = default;
void Fences::clear() {}
Words::Words() = default;
Words::~Words() = default;
void Words::fence(Fences&) {}
void Words::has_read(Fences&, const void*) {}
void Words::writes(Fences&, const void*) {}
void Words::modifies(Fences&, const void*) {}

#endif

}  // namespace pith::simt
