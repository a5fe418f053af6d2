// The compiled variants of a session, for readers such as the command and tests. Not installed.
#pragma once
#include "api/session.h"
#include "api/session/session_variant.h"
#include "codegen/driver/compile.h"
