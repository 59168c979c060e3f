#pragma once

#include "tests/unit/supervisor/route/ledger_fixture.hpp"

namespace shoal::supervisor {

class LedgerDeathTest : public LedgerTest {
 protected:
  LedgerDeathTest() : LedgerTest({.queue_limit = 64}) {}
  /// Workers crash one after the other while nothing runs, until the breaker opens.
  void open_breaker() {
    LaneEvidence crash;
    crash.crashed = true;
    for (Incarnation worker = 1; worker <= Breaker::kCrashes; ++worker) {
      ready(worker);
      die(worker, {crash});
    }
  }
};

}  // namespace shoal::supervisor
