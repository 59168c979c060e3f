#include "supervisor/process/timers.hpp"

#include <algorithm>

namespace shoal::supervisor {

void Timer::set(std::uint64_t at_ns) {
  clear();
  at_ns_ = std::max(at_ns, timers_.running_ns_);  // otherwise a handler that sets itself again would go before the others
  timers_.add(*this);
}

void Timer::clear() {
  if (is_set()) timers_.remove(*this);
}

// A handler may destroy its timer, so it is called as a copy. Timers that handlers set meanwhile have larger numbers.
void Timers::run_due(std::uint64_t now_ns) {
  const std::uint64_t last = last_number_;
  running_ns_ = now_ns;
  for (int called = 0; called < kMostPerTurn && !heap_.empty() && heap_.front()->at_ns_ <= now_ns; ++called) {
    Timer& timer = *heap_.front();
    if (timer.number_ > last) break;
    const Timer::Handler handler = timer.handler_;
    remove(timer);
    handler(now_ns);
  }
  running_ns_ = 0;
}

void Timers::postpone(std::uint64_t by_ns) {
  for (Timer* timer : heap_) {
    if (timer->kind_ == Timer::Kind::kPatience) timer->at_ns_ += by_ns;
  }
  for (std::size_t place = heap_.size(); place-- > 0;) sift_down(place);
}

void Timers::add(Timer& timer) {
  timer.number_ = ++last_number_;
  heap_.push_back(&timer);
  timer.place_ = heap_.size() - 1;
  sift_up(timer.place_);
}

void Timers::remove(Timer& timer) {
  const std::size_t place = timer.place_;
  timer.place_ = Timer::kNoPlace;
  Timer& last = *heap_.back();
  heap_.pop_back();
  if (&last == &timer) return;
  put(place, last);
  sift_up(place);
  sift_down(last.place_);
}

void Timers::put(std::size_t place, Timer& timer) {
  heap_[place] = &timer;
  timer.place_ = place;
}

void Timers::sift_up(std::size_t place) {
  Timer& timer = *heap_[place];
  for (; place > 0 && before(timer, *heap_[(place - 1) / 2]); place = (place - 1) / 2) put(place, *heap_[(place - 1) / 2]);
  put(place, timer);
}

void Timers::sift_down(std::size_t place) {
  Timer& timer = *heap_[place];
  for (std::size_t child = 0; (child = place * 2 + 1) < heap_.size(); place = child) {
    if (child + 1 < heap_.size() && before(*heap_[child + 1], *heap_[child])) ++child;
    if (!before(*heap_[child], timer)) break;
    put(place, *heap_[child]);
  }
  put(place, timer);
}

}  // namespace shoal::supervisor
