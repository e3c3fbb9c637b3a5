// For run-time compilers, whose math functions need no declaration.
#pragma once
